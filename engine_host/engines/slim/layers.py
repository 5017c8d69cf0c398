"""The operations of one transformer layer. Rows are tokens: of one sequence or of many."""

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm of each row. x [rows, hidden], weight [hidden]."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [rows, in] times weight [out, in], giving [rows, out]."""
    return F.linear(x, weight)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each head by its row's position.

    x [rows, heads, head_dim], cos and sin [rows, 1, head_dim].
    """
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Gated feed-forward block. x [rows, hidden], gate and up [mlp, hidden], down [hidden, mlp]."""
    return linear(F.silu(linear(x, gate)) * linear(x, up), down)


def attention_prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last positions of one sequence over all of it.

    q [rows, heads, head_dim] belongs to the last `rows` of the positions in
    k, v [positions, kv_heads, head_dim]. Returns [rows, heads, head_dim].
    """
    rows, positions = q.shape[0], k.shape[0]
    mask = None
    if rows != positions:
        mask = torch.ones(rows, positions, dtype=torch.bool, device=q.device)
        mask = mask.tril(diagonal=positions - rows)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out[0].transpose(0, 1)


def attention_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of the newest position of one sequence over all of it.

    q [heads, head_dim], k and v [positions, kv_heads, head_dim]. Returns [heads, head_dim].
    The heads that share a key-value head are rows of one product with it.
    """
    kv_heads, head_dim = k.shape[1:]
    out = F.scaled_dot_product_attention(
        q.view(1, kv_heads, -1, head_dim), k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    )
    return out.view_as(q)
