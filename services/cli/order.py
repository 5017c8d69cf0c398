"""From the words of the command line to an `OpenCampaign`; wrong words get a reason."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from protos.messages import OpenCampaign, Policy
from protos.target import (
    ENGINES,
    STRATEGIES,
    WORKLOADS,
    Budget,
    Objective,
    Target,
    Workload,
    parse_duration_s,
    parse_objective,
)
from services.cli.errors import UsageError
from services.local.run_folder import suggest

DEFAULT_BUDGET = "5m"

# Of the candidates that the fast tier refused, the share that gets a slow trial all the same:
# without any, nobody knows what it misses. A slow trial takes as long as some five fast ones.
AUDIT_SHARE = 0.02


def order(options: argparse.Namespace) -> tuple[OpenCampaign, Path | None]:
    """The campaign that the options ask for, and the trace file it needs.

    The trace's digest is filled in once the run folder is there. Raises UsageError.
    """
    _one_of("engine", options.engine, ENGINES)
    _one_of("workload", options.workload, WORKLOADS)
    workload, trace = _workload(options.workload, options.trace)
    _known_device(options.device)
    given = DEFAULT_BUDGET if options.budget is None else options.budget
    try:
        budget = Budget(wall_s=parse_duration_s(given))
        objective = _objective(options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    opening = OpenCampaign(
        campaign=name(options.workload, options.seed, time.time()),
        target=Target(options.engine, _model(options.model), options.precision, options.device),
        workload=workload,
        objective=objective,
        budget=budget,
        policy=_policy(options, budget.wall_s),
    )
    return opening, trace


def name(workload: str, seed: int | None, now_s: float) -> str:
    """A readable campaign name: by local time, `single-20261130-191205`, or `single-seed7`.

    Proposers seed what they draw from it, so two campaigns of one name draw the same.
    """
    if seed is not None:
        return f"{workload}-seed{seed}"
    return f"{workload}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now_s))}"


def _objective(options: argparse.Namespace) -> Objective:
    asked = parse_objective(options.objective)
    return msgspec.structs.replace(
        asked, output_class=options.output_class, min_effect=options.min_effect
    )


def _policy(options: argparse.Namespace, wall_s: float) -> Policy:
    if not 0.0 <= options.control < 1.0:
        raise UsageError(f"--control must lie between 0 and 1, not {options.control}")
    if not 0.0 <= options.canaries < 1.0:
        raise UsageError(f"--canaries must lie between 0 and 1, not {options.canaries}")
    strategies = tuple(name.strip() for name in options.strategies.split(",") if name.strip())
    for strategy in strategies:
        _one_of("strategy", strategy, STRATEGIES)
    return Policy(
        control_share=options.control,
        strategies=strategies,
        audit_slow_share=AUDIT_SHARE,
        canary_share=options.canaries,
    )


def _model(given: str) -> str:
    """A path made absolute, as rooms may run elsewhere; other names are the engine host's."""
    if not given.strip():
        raise UsageError("--model is empty: leave it out for the default model, or name one")
    path = Path(given).expanduser()
    return str(path.resolve()) if path.exists() else given


def _workload(name: str, trace: Path | None) -> tuple[Workload, Path | None]:
    if name != "trace":
        if trace is not None:
            raise UsageError(f"--trace goes with --workload trace, not with {name}")
        return Workload(name), None
    if trace is None:
        raise UsageError("--workload trace needs --trace FILE (Mooncake JSONL or Azure CSV)")
    return Workload(name, trace_format=_checked_format(trace)), trace


def _checked_format(trace: Path) -> str:
    """The trace's format, by the evaluator's own reader in a process of its own."""
    argv = [sys.executable, "-m", "evaluator.workloads", "check-trace", str(trace)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(
            done.stderr.strip().splitlines()[-1] if done.stderr else "unreadable trace"
        )
    return str(json.loads(done.stdout)["format"])


def _known_device(given: str) -> None:
    if given != "cpu" and not given.startswith("cuda"):
        raise UsageError(f"unknown device class {given!r}: use cpu")


def _one_of(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        close = suggest(given, list(known))
        hint = f"{close} " if close.startswith("did") else ""
        raise UsageError(f"unknown {what} {given!r}: {hint}use one of {', '.join(known)}")
