"""The Python around the passes: choosing tokens, planning, bookkeeping."""

from __future__ import annotations

from proposer.playbook.edit import guard, rebody
from proposer.playbook.rewrite import Change, Parameter, Rewrite, Settings, Sources

_GREEDY = """
if len(sequences) == 1 and sequences[0].request.temperature == 0.0:
    return [int(logits[0].argmax())]
"""
_WIDE_GREEDY = """
if all(sequence.request.temperature == 0.0 for sequence in sequences):
    largest, tokens = logits.max(dim=-1)
    return tokens.tolist()
"""
_LAZY_REMEMBER = """
if sequence.computed // self.block_size <= sequence.known_blocks:
    return
"""
_STEADY_PLAN = """
if not self.waiting and len(self.running) == 1 and self.running[0].pending == 1:
    sequence = self.running[0]
    if self.pool.grow(sequence, len(sequence.tokens)):
        return Plan(decode=[sequence])
"""
_STACKED = """
spans = batch.spans
if len(spans) == 1:
    return attention_decode(q[0], *cache.read(index, spans[0].context))[None]
out = torch.empty_like(q)
for span in spans:
    out[span.start] = attention_decode(q[span.start], *cache.read(index, span.context))
return out
"""
_PADDED = """
spans = batch.spans
if len(spans) == 1:
    return attention_decode(q[0], *cache.read(index, spans[0].context))[None]
pairs = [cache.read(index, span.context) for span in spans]
keys = torch.nn.utils.rnn.pad_sequence([k for k, _ in pairs], batch_first=True).transpose(1, 2)
values = torch.nn.utils.rnn.pad_sequence([v for _, v in pairs], batch_first=True).transpose(1, 2)
lengths = torch.tensor([k.shape[0] for k, _ in pairs], device=q.device)
mask = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
grouped = q.shape[1] != keys.shape[1]
out = torch.nn.functional.scaled_dot_product_attention(
    q[:, :, None], keys, values, attn_mask=mask[:, None, None], enable_gqa=grouped
)
return out[:, :, 0]
"""


def _greedy(sources: Sources, settings: Settings) -> Change:
    path = "slim/sampling.py"
    code = _GREEDY if settings["rows"] == "one" else _WIDE_GREEDY
    return Change({path: guard(sources[path], "choose_tokens", code)})


def _remember(sources: Sources, settings: Settings) -> Change:
    path = "slim/blocks.py"
    return Change({path: guard(sources[path], "BlockPool.remember", _LAZY_REMEMBER)})


def _plan(sources: Sources, settings: Settings) -> Change:
    path = "slim/scheduler.py"
    return Change({path: guard(sources[path], "Scheduler.plan", _STEADY_PLAN)})


def _shortest(sources: Sources, settings: Settings) -> Change:
    path = "slim/scheduler.py"
    code = "if len(self.running) > 1:\n    self.running.sort(key=lambda s: s.pending)\n"
    return Change({path: guard(sources[path], "Scheduler.plan", code)})


def _batched_attention(sources: Sources, settings: Settings) -> Change:
    path = "slim/model.py"
    code = _PADDED if settings["form"] == "padded" else _STACKED
    return Change({path: rebody(sources[path], "Model._attend_decode", code)})


STEPPING = (
    Rewrite(
        "greedy-choice",
        "A greedy request needs the largest score only, not a list of lists.",
        _greedy,
        (Parameter("rows", ("one", "all")),),
    ),
    Rewrite(
        "steady-plan",
        "While one sequence decodes and nothing waits, the plan is always the same.",
        _plan,
    ),
    Rewrite(
        "lazy-remember",
        "Blocks become known once in a block's length of steps; other steps have nothing to do.",
        _remember,
    ),
    Rewrite(
        "batched-attention",
        "Decoding sequences attend together instead of one after another.",
        _batched_attention,
        (Parameter("form", ("padded", "in_place")),),
    ),
    Rewrite(
        "shortest-prompt-first",
        "Short prompts finish sooner when they don't wait behind long ones.",
        _shortest,
    ),
)
