"""Where things lie: huge pages, the cache's layout, buffers kept, cores, collector, denormals."""

from __future__ import annotations

from proposer.playbook.edit import guard, swap
from proposer.playbook.native import library, merged, prepare_step
from proposer.playbook.rewrite import Change, Parameter, Rewrite, Settings, Sources

_HUGE_STEP = '''
"""The weights in anonymous memory on huge pages: fewer misses while a pass reads all of them."""

import ctypes
import mmap
from dataclasses import fields, replace

import torch


def prepare(engine):
    model = engine.model
    if model.device.type != "cpu":
        return
    layers = model.layers if $what != "output" else []
    tensors = [model.output, *(getattr(x, f.name) for x in layers for f in fields(x))]
    if $what == "layers":
        tensors = tensors[1:]
    unique = {t.data_ptr(): t for t in tensors}
    memory = mmap.mmap(
        -1,
        sum(t.nbytes + 64 for t in unique.values()) + (4 << 20),
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
    )
    memory.madvise(mmap.MADV_HUGEPAGE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    at = -begin % (2 << 20)
    moved = {}
    for place, tensor in unique.items():
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=at)
        moved[place] = flat.view(tensor.shape).copy_(tensor)
        at += tensor.nbytes + -tensor.nbytes % 64
    if $what != "layers":
        model.output = moved[model.output.data_ptr()]
    for index, layer in enumerate(layers):
        new = {f.name: moved[getattr(layer, f.name).data_ptr()] for f in fields(layer)}
        model.layers[index] = replace(layer, **new)
'''
_GC_STEP = '''
"""Nothing made so far is looked at by the collector again."""

import gc


def prepare(engine):
    gc.collect()
    gc.freeze()
    if $disable:
        gc.disable()
'''
_DENORMAL_STEP = '''
"""Numbers too small for a full mantissa count as zero."""

import torch


def prepare(engine):
    torch.set_flush_denormal(True)
'''
_PIN_STEP = '''
"""Every thread of the parallel pool on a core of its own."""

import ctypes
import os

import torch

from ..native import library


def prepare(engine):
    cores = sorted(os.sched_getaffinity(0))
    if $order == "reversed":
        cores.reverse()
    numbers = (ctypes.c_int * len(cores))(*cores)
    library("pin").pin(torch.get_num_threads(), len(cores), numbers)
'''
_KEYS = "self.keys = torch.empty(shape, dtype=dtype, device=device)"
_VALUES = "self.values = torch.empty(shape, dtype=dtype, device=device)"
_HEADS_FIRST = """
by_head = (layers, kv_heads, slots, head_dim)
self.keys = torch.empty(by_head, dtype=dtype, device=device).transpose(1, 2)
self.values = torch.empty(by_head, dtype=dtype, device=device).transpose(1, 2)
"""
_TOGETHER = """
both = torch.empty((layers, 2, slots, kv_heads, head_dim), dtype=dtype, device=device)
self.keys, self.values = both[:, 0], both[:, 1]
"""
_BUFFERS_STEP = '''
"""Index tensors of a decoding batch, made once."""

import torch


def prepare(engine):
    if engine.model.device.type == "cpu":
        engine.index_rows = torch.empty(3, 1, dtype=torch.int64)
'''
_BUFFERS = """
if len(chunks) == 1 and chunks[0][1] == 1 and hasattr(self, "index_rows"):
    sequence, at, rows = chunks[0][0], chunks[0][0].computed, self.index_rows
    size = self.scheduler.pool.block_size
    rows[0, 0], rows[1, 0] = sequence.tokens[at], at
    rows[2, 0] = sequence.blocks[at // size] * size + at % size
    spans = [Span(0, 1, self._context(sequence, at + 1))]
    return Batch(rows[0], rows[1], rows[2], spans)
"""
_SLICE_WRITE = """
if slots.shape[0] == 1 and slots.device.type == "cpu":
    slot = int(slots)
    self.keys[layer, slot], self.values[layer, slot] = k[0], v[0]
    return
"""
_RESIDUAL_1 = "x = x + linear(attend(q, index, batch, cache).flatten(1), layer.o)"
_RESIDUAL_2 = "x = x + mlp(normed, layer.gate, layer.up, layer.down)"


def _step_only(name: str, text: str, sources: Sources, settings: Settings) -> Change:
    for key, value in settings.items():
        text = text.replace(f"${key}", repr(value))
    return Change(prepare_step(sources, name, text))


def _pinned(sources: Sources, settings: Settings) -> Change:
    files, build = library("pin", "pin")
    return merged(Change(files, (build,)), _step_only("pinned", _PIN_STEP, sources, settings))


def _cache_layout(sources: Sources, settings: Settings) -> Change:
    path = "slim/kv_cache.py"
    old = f"{_KEYS}\n{_VALUES}"
    new = _HEADS_FIRST if settings["layout"] == "heads_first" else _TOGETHER
    return Change({path: swap(sources[path], "KVCache.__init__", old, new)})


def _buffers(sources: Sources, settings: Settings) -> Change:
    engine = guard(sources["slim/engine.py"], "Engine._batch", _BUFFERS)
    return Change({"slim/engine.py": engine} | prepare_step(sources, "buffers", _BUFFERS_STEP))


def _slice_write(sources: Sources, settings: Settings) -> Change:
    path = "slim/kv_cache.py"
    return Change({path: guard(sources[path], "KVCache.write", _SLICE_WRITE)})


def _residual(sources: Sources, settings: Settings) -> Change:
    path = "slim/model.py"
    text = swap(
        sources[path],
        "Model._run",
        _RESIDUAL_1,
        "x.add_(linear(attend(q, index, batch, cache).flatten(1), layer.o))",
    )
    text = swap(
        text, "Model._run", _RESIDUAL_2, "x.add_(mlp(normed, layer.gate, layer.up, layer.down))"
    )
    return Change({path: text})


MEMORY = (
    Rewrite(
        "huge-pages",
        "A mapped file is read through 4 KiB pages; on huge pages the same loop streams faster.",
        lambda sources, settings: _step_only("huge_pages", _HUGE_STEP, sources, settings),
        (Parameter("what", ("all", "layers", "output")),),
    ),
    Rewrite(
        "cache-layout",
        "Keys of one head next to each other are read in one stream.",
        _cache_layout,
        (Parameter("layout", ("heads_first", "together")),),
    ),
    Rewrite(
        "kept-buffers",
        "A decoding step of one sequence builds three index tensors: keep them.",
        _buffers,
    ),
    Rewrite("residual-in-place", "The residual stream needs no new tensor a layer.", _residual),
    Rewrite(
        "slot-write",
        "One slot is written faster by an index than by a gathered copy.",
        _slice_write,
    ),
    Rewrite(
        "pinned-threads",
        "A thread that stays on its core keeps its caches.",
        _pinned,
        (Parameter("order", ("given", "reversed")),),
    ),
    Rewrite(
        "frozen-collector",
        "The collector walks every module and tensor again and again: freeze what is there.",
        lambda sources, settings: _step_only("frozen_collector", _GC_STEP, sources, settings),
        (Parameter("disable", (True, False)),),
    ),
    Rewrite(
        "no-denormals",
        "Numbers too small for a full mantissa are slow on some cores.",
        lambda sources, settings: _step_only("no_denormals", _DENORMAL_STEP, sources, settings),
    ),
)
