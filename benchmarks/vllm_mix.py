"""The checked-in mix of candidates for vLLM, made at run time from the installed files.

Edits name functions, not lines of vLLM's text: statements put at a function's start, or in place of
its body. Two mixes: one for a compiled engine, whose model code is held by graphs, so that what can
be tried hot is the serving loop; one for an eager engine, where model functions are tried hot too.
"""

from __future__ import annotations

import ast
import itertools
import os
import random
import textwrap
from collections.abc import Callable, Iterator

from benchmarks.mix import Entry, Sources
from engine_host.environments import environment
from engine_host.vllm_tree import FILES
from protos.candidate import Scalar

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
SAMPLER = "vllm/v1/sample/sampler.py"
OUTPUTS = "vllm/v1/engine/output_processor.py"
POOL = "vllm/v1/core/block_pool.py"
LLAMA = "vllm/model_executor/models/llama.py"
ACTIVATION = "vllm/model_executor/layers/activation.py"
MODES = ("compiled", "eager")
ALL_CORES: dict[str, Scalar] = {"threads": len(os.sched_getaffinity(0))}


def vllm_sources() -> Sources:
    """Path in the tree (`vllm/v1/request.py`) to text. Raises HostError without an environment."""
    root = environment("vllm").packages / "vllm"
    return {f"vllm/{name}": (root / name).read_text() for name in FILES if (root / name).is_file()}


def at_start(sources: Sources, path: str, name: str, code: str) -> Sources:
    """`path` with `code` as the first statements of function `name` (`Class.method`).

    Raises LookupError where there is none.
    """
    lines, body = _body_of(sources, path, name)
    first = body[0]
    before = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1
    return {path: "".join([*lines[:before], _indented(code, first), *lines[before:]])}


def instead(sources: Sources, path: str, name: str, code: str) -> Sources:
    """`path` with `code` in place of the body of function `name`, its docstring kept."""
    lines, body = _body_of(sources, path, name)
    before, after = body[0].lineno - 1, body[-1].end_lineno
    return {path: "".join([*lines[:before], _indented(code, body[0]), *lines[after:]])}


def _body_of(sources: Sources, path: str, name: str) -> tuple[list[str], list[ast.stmt]]:
    text = sources[path]
    found: list[ast.stmt] = ast.parse(text).body
    for part in name.split("."):
        inside = [
            node
            for node in found
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == part
        ]
        if not inside:
            raise LookupError(f"{path} has no {name}")
        found = inside[-1].body
    if (
        len(found) > 1
        and isinstance(found[0], ast.Expr)
        and isinstance(found[0].value, ast.Constant)
    ):
        found = found[1:]
    return text.splitlines(keepends=True), found


def _indented(code: str, like: ast.stmt) -> str:
    return textwrap.indent(textwrap.dedent(code).strip("\n") + "\n", " " * like.col_offset)


def spending(path: str, name: str) -> Callable[[Sources, int], Sources]:
    """A change of one function that spends so many thousand additions in each call."""
    return lambda sources, n: at_start(sources, path, name, f"sum(range({n} * 1000))")


busy_schedule = spending(SCHEDULER, "Scheduler.schedule")
busy_update = spending(SCHEDULER, "Scheduler.update_from_output")
busy_outputs = spending(OUTPUTS, "OutputProcessor.process_outputs")


def neutral(sources: Sources, number: int) -> Sources:
    """A change of the scheduler that does nothing of note."""
    return at_start(sources, SCHEDULER, "Scheduler.schedule", f"_unused = {number}")


def collector_off(sources: Sources, number: int) -> Sources:
    """No garbage collection while requests are served."""
    code = f"__import__('gc').disable()  # {number}"
    return at_start(sources, SCHEDULER, "Scheduler.schedule", code)


def built_otherwise(sources: Sources, number: int) -> Sources:
    """A constructor that does something more: the engine has to be built anew."""
    return at_start(sources, SCHEDULER, "Scheduler.__init__", f"self.built_as = {number}")


def sorting_sampler(sources: Sources, times: int, number: int = 0) -> Sources:
    """Sort the whole vocabulary, for nothing, before each token is chosen."""
    code = f"for _ in range({times}):\n    logits.sort(dim=-1)  # {number}"
    return at_start(sources, SAMPLER, "Sampler.sample", code)


def plain_argmax(sources: Sources, number: int) -> Sources:
    """torch's own argmax for greedy choices."""
    code = f"return logits.argmax(dim=-1).view(-1)  # {number}"
    return instead(sources, SAMPLER, "Sampler.greedy_sample", code)


def split_silu(sources: Sources, number: int) -> Sources:
    """The activation in place on the first half."""
    code = f"""
        first, second = x.chunk(2, dim=-1)  # {number}
        return F.silu(first).mul_(second)
        """
    return instead(sources, ACTIVATION, "SiluAndMul.forward_native", code)


def direct_mlp(sources: Sources, number: int) -> Sources:
    """The feed-forward block without the layers' wrappers."""
    code = f"""
        up, down = self.gate_up_proj, self.down_proj  # {number}
        if up.bias is None and down.bias is None and down.tp_size == 1:
            x = self.act_fn(up.quant_method.apply(up, x, None))
            return down.quant_method.apply(down, x, None)
        """
    return at_start(sources, LLAMA, "LlamaMLP.forward", code)


def wide_mlp(sources: Sources, times: int, number: int = 0) -> Sources:
    """Compute the first projection of every feed-forward block so many times more."""
    code = f"for _ in range({times}):\n    self.gate_up_proj(x)  # {number}"
    return at_start(sources, LLAMA, "LlamaMLP.forward", code)


def module_constant(sources: Sources, number: int) -> Sources:
    """A module-level statement in the model's file."""
    return {LLAMA: sources[LLAMA] + f"\n\nLAYOUT_VERSION = {number}\nLAYOUT_VERSION += 1\n"}


def second_best(sources: Sources, number: int) -> Sources:
    """The second most likely token: incorrect."""
    code = f"return logits.topk(2, dim=-1).indices[:, 1].view(-1)  # {number}"
    return instead(sources, SAMPLER, "Sampler.greedy_sample", code)


def bad(sources: Sources, number: int) -> list[Entry]:
    """What must not win, another text for each number."""
    schedule = "Scheduler.schedule"
    texts = {
        "second-best token": second_best(sources, number),
        "raises": at_start(sources, SCHEDULER, schedule, f"raise RuntimeError('no luck {number}')"),
        "exits": at_start(sources, SCHEDULER, schedule, f"__import__('os')._exit({number} % 100)"),
        "does not parse": {SCHEDULER: sources[SCHEDULER] + f"\n\ndef {number}():\n    pass\n"},
        "never runs": {POOL: sources[POOL] + f"\n\ndef unused() -> int:\n    return {number}\n"},
    }
    return [Entry(f"{label} {number}", "bad", files) for label, files in texts.items()]


def graded(sources: Sources, mode: str) -> list[Entry]:
    """The twenty candidates that are also measured by the controls: same labels, same texts."""
    return [*_serving(sources, 0), *_of_mode(sources, mode, 0), *bad(sources, 0)[:2]]


def _serving(sources: Sources, n: int) -> list[Entry]:
    """Thirteen changes of the serving loop and of live knobs, hot in both modes.

    `n` makes their texts new ones.
    """

    def function(label: str, files: Sources, knobs: dict[str, Scalar] | None = None) -> Entry:
        return Entry(f"{label} {n}", "function", files, knobs or {}, grade=True)

    def knob(label: str, knobs: dict[str, Scalar]) -> Entry:
        return Entry(f"{label} {n}", "knob", knobs=knobs, grade=True)

    chunk: dict[str, Scalar] = {"max_num_batched_tokens": 256 + n, "max_num_seqs": 32}
    threshold: dict[str, Scalar] = {"long_prefill_token_threshold": 64 + n}
    return [
        function("neutral", neutral(sources, n)),
        *(
            function(f"schedule spends {t}", busy_schedule(sources, t + n))
            for t in (60, 120, 250, 900)
        ),
        function("update spends 500", busy_update(sources, 500 + n)),
        function("outputs spend 150", busy_outputs(sources, 150 + n)),
        function("sampler sorts once", sorting_sampler(sources, 1, n)),
        function("sampler sorts 4 times", sorting_sampler(sources, 4, n)),
        function("argmax of torch", plain_argmax(sources, n)),
        function("collector off", collector_off(sources, n)),
        knob("small steps", chunk),
        knob("long prompts in pieces", threshold),
    ]


def _of_mode(sources: Sources, mode: str, n: int) -> list[Entry]:
    """Five more: rungs and functions that cost another amount in each mode."""

    def entry(label: str, kind: str, files: Sources, knobs: dict[str, Scalar]) -> Entry:
        return Entry(f"{label} {n}", kind, files, knobs, grade=True)

    warm = [
        entry("scheduler built otherwise", "warm", built_otherwise(sources, n), {}),
        entry("all cores", "warm", {}, {**ALL_CORES, "max_num_batched_tokens": 2048 - n}),
    ]
    if mode == "compiled":
        return [
            *warm,
            entry("outputs spend 1200", "function", busy_outputs(sources, 1200 + n), {}),
            entry("update spends 1600", "function", busy_update(sources, 1600 + n), {}),
            entry("schedule spends 2000", "function", busy_schedule(sources, 2000 + n), {}),
        ]
    return [
        *warm,
        entry("activation in place", "function", split_silu(sources, n), {}),
        entry("direct feed-forward", "function", direct_mlp(sources, n), {}),
        entry("feed-forward up twice", "function", wide_mlp(sources, 1, n), {}),
    ]


def mix(sources: Sources, mode: str, seed: int = 1) -> Iterator[Entry]:
    """The endless mix: first the twenty graded ones, then rounds of their variants, shuffled."""
    chance = random.Random(seed)
    for number in itertools.count(0):
        entries = [*_serving(sources, number), *_of_mode(sources, mode, number)]
        kept = bad(sources, number)
        entries += kept[:2] if number == 0 else chance.sample(kept, 2)
        chance.shuffle(entries)
        yield from entries
