"""The transformer: embeddings, the stack of layers, logits."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .batch import Batch
from .kv_cache import KVCache
from .layers import attention_decode, attention_prefill, linear, mlp, rms_norm, rotary
from .rope import rotary_tables
from .weights import Weights

Attention = Callable[[torch.Tensor, int, Batch, KVCache], torch.Tensor]


@dataclass(frozen=True)
class Layer:
    """Weights of one layer, each [out, in]; norms [hidden]."""

    attention_norm: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    mlp_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


class Model:
    """A Llama-architecture model over mapped weights.

    `decode` and `prefill` take a batch, write its keys and values into the cache, and return the
    last hidden states [rows, hidden]; `logits` turns those into scores of the vocabulary.
    """

    def __init__(
        self, weights: Weights, positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config = weights.config
        self.dtype, self.device = dtype, device
        # Neither call copies weights that are already of this type and in this memory.
        tensors = {name: t.to(device=device, dtype=dtype) for name, t in weights.tensors.items()}
        self.embedding = tensors["model.embed_tokens.weight"]
        self.final_norm = tensors["model.norm.weight"]
        self.output = tensors.get("lm_head.weight", self.embedding)
        self.layers = [_layer(tensors, index) for index in range(self.config.layers)]
        self.cos, self.sin = rotary_tables(self.config, positions, dtype, device)
        self.onednn_min_rows = 2

    def decode(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """One new token of each sequence: row i is the newest token of span i."""
        return self._run(batch, cache, self._attend_decode)

    def prefill(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Chunks of prompts: several rows of each sequence."""
        return self._run(batch, cache, self._attend_prefill)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores [rows, vocab] in float32 of hidden states [rows, hidden]."""
        self._choose_matrix_products(hidden.shape[0])
        normed = rms_norm(hidden, self.final_norm, self.config.norm_eps)
        return linear(normed, self.output).float()

    def _run(self, batch: Batch, cache: KVCache, attend: Attention) -> torch.Tensor:
        self._choose_matrix_products(batch.tokens.shape[0])
        cos, sin = self.cos[batch.positions, None], self.sin[batch.positions, None]
        x = self.embedding[batch.tokens]
        for index, layer in enumerate(self.layers):
            normed = rms_norm(x, layer.attention_norm, self.config.norm_eps)
            q = self._project(normed, layer, index, batch, cache, cos, sin)
            x = x + linear(attend(q, index, batch, cache).flatten(1), layer.o)
            normed = rms_norm(x, layer.mlp_norm, self.config.norm_eps)
            x = x + mlp(normed, layer.gate, layer.up, layer.down)
        return x

    def _project(
        self,
        x: torch.Tensor,
        layer: Layer,
        index: int,
        batch: Batch,
        cache: KVCache,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        """Store this layer's keys and values; return its queries [rows, heads, head_dim]."""
        rows, head_dim = x.shape[0], self.config.head_dim
        q = linear(x, layer.q).view(rows, self.config.heads, head_dim)
        k = linear(x, layer.k).view(rows, self.config.kv_heads, head_dim)
        v = linear(x, layer.v).view(rows, self.config.kv_heads, head_dim)
        cache.write(index, batch.slots, rotary(k, cos, sin), v)
        return rotary(q, cos, sin)

    def _attend_decode(
        self, q: torch.Tensor, index: int, batch: Batch, cache: KVCache
    ) -> torch.Tensor:
        spans = batch.spans
        if len(spans) == 1:
            return attention_decode(q[0], *cache.read(index, spans[0].context))[None]
        return torch.stack(
            [attention_decode(q[s.start], *cache.read(index, s.context)) for s in spans]
        )

    def _attend_prefill(
        self, q: torch.Tensor, index: int, batch: Batch, cache: KVCache
    ) -> torch.Tensor:
        parts = [
            attention_prefill(q[span.start : span.end], *cache.read(index, span.context))
            for span in batch.spans
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _choose_matrix_products(self, rows: int) -> None:
        torch.backends.mkldnn.enabled = rows >= self.onednn_min_rows  # type: ignore[assignment]


def _layer(tensors: dict[str, torch.Tensor], index: int) -> Layer:
    prefix = f"model.layers.{index}."
    return Layer(
        attention_norm=tensors[prefix + "input_layernorm.weight"],
        q=tensors[prefix + "self_attn.q_proj.weight"],
        k=tensors[prefix + "self_attn.k_proj.weight"],
        v=tensors[prefix + "self_attn.v_proj.weight"],
        o=tensors[prefix + "self_attn.o_proj.weight"],
        mlp_norm=tensors[prefix + "post_attention_layernorm.weight"],
        gate=tensors[prefix + "mlp.gate_proj.weight"],
        up=tensors[prefix + "mlp.up_proj.weight"],
        down=tensors[prefix + "mlp.down_proj.weight"],
    )
