"""Products of matrices: fused, laid out otherwise, packed beforehand, or compiled."""

from __future__ import annotations

from proposer.playbook.edit import guard, rebody, require, swap
from proposer.playbook.native import prepare_step
from proposer.playbook.rewrite import Change, Parameter, Rewrite, Settings, Sources

_QKV_STEP = '''
"""Query, key and value weights of each layer as one matrix."""

import torch


def prepare(engine):
    engine.model.qkv = [torch.cat((layer.q, layer.k, layer.v)) for layer in engine.model.layers]
'''
_QKV_OLD = """
q = linear(x, layer.q).view(rows, self.config.heads, head_dim)
k = linear(x, layer.k).view(rows, self.config.kv_heads, head_dim)
v = linear(x, layer.v).view(rows, self.config.kv_heads, head_dim)
"""
_QKV_NEW = """
heads, kv_heads = self.config.heads, self.config.kv_heads
qkv = linear(x, self.qkv[index]).view(rows, heads + 2 * kv_heads, head_dim)
q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
"""
_GATE_UP_STEP = '''
"""Gate and up weights of each layer as one matrix, found by the gate's address."""

import torch

from .. import layers


def prepare(engine):
    layers.gate_up = {
        layer.gate.data_ptr(): torch.cat((layer.gate, layer.up)) for layer in engine.model.layers
    }
'''
_GATE_UP = """
both = globals().get("gate_up", {}).get(gate.data_ptr())
if both is not None:
    opened, raised = linear(x, both).chunk(2, dim=-1)
    return linear(F.silu(opened) * raised, down)
"""
_TRANSPOSED_STEP = '''
"""A copy of each matrix with its input dimension first."""

from .. import layers


def prepare(engine):
    names = ("q", "k", "v", "o", "gate", "up", "down")
    matrices = [getattr(layer, name) for layer in engine.model.layers for name in names]
    layers.transposed = {m.data_ptr(): m.t().contiguous() for m in matrices}
'''
_TRANSPOSED = """
turned = globals().get("transposed", {}).get(weight.data_ptr())
if turned is not None and weight.shape[0] == turned.shape[1]:
    return x @ turned
"""
_PACKED_STEP = '''
"""Weights in oneDNN's own blocked layout."""

import torch

from .. import layers


def prepare(engine):
    if engine.model.device.type != "cpu" or engine.model.dtype != torch.bfloat16:
        return
    names = ("q", "k", "v", "o", "gate", "up", "down")
    matrices = [getattr(layer, name) for layer in engine.model.layers for name in names]
    matrices.append(engine.model.output)
    reorder = torch.ops.mkldnn._reorder_linear_weight
    layers.packed = {m.data_ptr(): reorder(m, $rows) for m in matrices}
    layers.packed_shapes = {m.data_ptr(): m.shape for m in matrices}
'''
_PACKED = """
block = globals().get("packed", {}).get(weight.data_ptr())
same = globals().get("packed_shapes", {}).get(weight.data_ptr()) == weight.shape
if block is not None and same and x.shape[0] >= $least:
    return torch.ops.mkldnn._linear_pointwise(x, block, None, "none", [], "")
"""
_COMPILED_STEP = '''
"""The functions of a layer, compiled."""

import torch

from .. import layers, model


def prepare(engine):
    for name in ("rms_norm", "rotary", "mlp"):
        compiled = torch.compile(getattr(layers, name), backend=$backend, dynamic=True)
        setattr(model, name, compiled)
    engine.submit({"id": -1, "prompt": [1, 1], "max_tokens": 3})
    while engine.busy():
        engine.step()
    engine.reset()
'''


def _fused_qkv(sources: Sources, settings: Settings) -> Change:
    model = swap(sources["slim/model.py"], "Model._project", _QKV_OLD, _QKV_NEW)
    return Change({"slim/model.py": model} | prepare_step(sources, "fused_qkv", _QKV_STEP))


def _fused_gate_up(sources: Sources, settings: Settings) -> Change:
    layers = guard(sources["slim/layers.py"], "mlp", _GATE_UP)
    return Change({"slim/layers.py": layers} | prepare_step(sources, "gate_up", _GATE_UP_STEP))


def _transposed(sources: Sources, settings: Settings) -> Change:
    layers = guard(sources["slim/layers.py"], "linear", _TRANSPOSED)
    return Change(
        {"slim/layers.py": layers} | prepare_step(sources, "transposed", _TRANSPOSED_STEP)
    )


def _packed(sources: Sources, settings: Settings) -> Change:
    step = _PACKED_STEP.replace("$rows", repr(settings["packed_for"]))
    code = _PACKED.replace("$least", repr(settings["from_rows"]))
    layers = guard(sources["slim/layers.py"], "linear", code)
    return Change({"slim/layers.py": layers} | prepare_step(sources, "packed", step))


def _compiled(sources: Sources, settings: Settings) -> Change:
    step = _COMPILED_STEP.replace("$backend", repr(settings["backend"]))
    require(sources["slim/model.py"], "Model._run")
    return Change(prepare_step(sources, "compiled", step))


def _sdpa(sources: Sources, settings: Settings) -> Change:
    return Change(
        {
            "slim/layers.py": rebody(
                sources["slim/layers.py"], "attention_decode", _ATTENTION[str(settings["form"])]
            )
        }
    )


_ATTENTION = {
    "products": """
    kv_heads, scale = k.shape[1], q.shape[1] ** -0.5
    grouped = q.view(kv_heads, -1, q.shape[1])
    scores = torch.bmm(grouped, k.permute(1, 2, 0)) * scale
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights, v.transpose(0, 1)).view(q.shape)
    """,
    "rows": """
    kv_heads = k.shape[1]
    grouped = q.view(kv_heads, -1, q.shape[1])[None]
    out = F.scaled_dot_product_attention(
        grouped, k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    )
    return out[0].reshape(q.shape)
    """,
    "repeated": """
    group = q.shape[0] // k.shape[1]
    keys = k.repeat_interleave(group, dim=1).transpose(0, 1)
    values = v.repeat_interleave(group, dim=1).transpose(0, 1)
    return F.scaled_dot_product_attention(q[:, None], keys, values)[:, 0]
    """,
}

PROJECTIONS = (
    Rewrite(
        "fused-qkv",
        "One product in place of three: fewer calls, longer streams.",
        _fused_qkv,
    ),
    Rewrite(
        "fused-gate-up",
        "Gate and up in one product: fewer calls, longer streams.",
        _fused_gate_up,
    ),
    Rewrite(
        "packed-weights",
        "oneDNN reorders a weight on every call unless it is packed beforehand; prompts gain most.",
        _packed,
        (Parameter("from_rows", (1, 2, 16)), Parameter("packed_for", (64, 1))),
    ),
    Rewrite(
        "attention-form",
        "Decode attention in another form: heads that share a key as rows of one query, plain "
        "products, or repeated keys.",
        _sdpa,
        (Parameter("form", ("rows", "products", "repeated")),),
    ),
    Rewrite(
        "transposed-weights",
        "The product without the transposed operand may take a faster path.",
        _transposed,
    ),
    Rewrite(
        "compiled-layers",
        "A compiler fuses the small operations of a layer.",
        _compiled,
        (Parameter("backend", ("inductor", "aot_eager")),),
    ),
)
