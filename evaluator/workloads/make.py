"""From a workload's name to its generator, and from a lease and a seed to the script. Pure."""

from collections.abc import Callable, Mapping

from evaluator.workloads.agent import Agent
from evaluator.workloads.base import Content, Generator, WorkloadError, prefix_hit
from evaluator.workloads.chat import Chat
from evaluator.workloads.code import Code
from evaluator.workloads.single import Single
from evaluator.workloads.trace import Trace, parse_trace
from protos.target import WORKLOADS, Workload
from protos.trial import Lease, PairScript, Plan, Script

_SIMPLE: dict[str, Callable[[Content, Mapping[str, float], int], Generator]] = {
    "single": Single,
    "chat": Chat,
    "code": Code,
    "agent": Agent,
}


def make_generator(
    workload: Workload, content: Content, max_context: int, trace: bytes | None = None
) -> Generator:
    """The generator of a workload; `trace` is the recorded file for `name="trace"`.

    Raises WorkloadError with one line that says what to do.
    """
    if workload.name == "trace":
        if trace is None:
            raise WorkloadError("workload trace needs a trace file: give one")
        rows = parse_trace(trace, workload.trace_format)
        return Trace(content, workload.params, max_context, rows)
    if workload.name not in _SIMPLE:
        raise WorkloadError(
            f"unknown workload {workload.name!r}: use one of {', '.join(WORKLOADS)}"
        )
    return _SIMPLE[workload.name](content, workload.params, max_context)


def pairs_of(plan: Plan) -> int:
    """How many pairs a script holds: the plan's, and spares for pairs that come out void."""
    if plan.starts > 0:
        return plan.starts * plan.pairs_per_start
    most = plan.rule.max_units
    # A pair has two turns at the very least, unless every output is a single token.
    return most // 2 + 4 if plan.rule.unit == "turns" else most + max(4, most // 2)


def make_script(
    lease: Lease, seed: str, generator: Generator, tokenizer: str | None, max_context: int
) -> Script:
    """Every pair of a trial, from its seed. The same arguments give the same script."""
    draw = generator.fast if lease.tier == "fast" else generator.slow
    pairs = tuple(draw(seed, pair) for pair in range(pairs_of(lease.plan)))
    return Script(
        trial=lease.trial,
        seed=seed,
        pairs=pairs,
        share=_share(pairs, generator),
        tokenizer=tokenizer,
        max_context=max_context,
    )


def _share(pairs: tuple[PairScript, ...], generator: Generator) -> dict[str, float]:
    timed = [item for pair in pairs for item in pair.requests]
    count = max(1, len(timed))
    return {
        "prefix_hit": prefix_hit(pairs),
        "prompt_tokens_mean": sum(len(item.prompt) for item in timed) / count,
        "output_tokens_mean": sum(item.max_tokens for item in timed) / count,
        "requests_per_pair": len(timed) / max(1, len(pairs)),
        **generator.report(),
    }
