"""Proof that a patch is used: its functions are made to raise, and a request must fail."""

from __future__ import annotations

from engine_host.block import serve
from engine_host.errors import TrialFailedError
from engine_host.residency import Residency
from engine_host.trial_process import EngagedError, TrialProcess
from protos.trial import Lease, Request


def prove(
    residency: Residency, process: TrialProcess, lease: Lease, request: Request
) -> tuple[bool | None, str]:
    """Whether any changed function is needed, and how that showed; None: none could be reached.

    `process` is side B after its last timed block; it is of no use afterwards. Where no request
    fails, one more process shows whether the engine can be built and prepared without them.
    """
    changed = lease.side_b.changed
    limits = lease.plan.limits
    process.thaw()
    try:
        armed = process.ask("arm", "block", limits.block_s, functions=list(changed))
        served = serve(process, [request], limits.block_s)
    except EngagedError as error:
        return True, f"a request failed: {error}"
    except TrialFailedError as error:
        return True, f"a request failed: {error.detail}"
    failed = [sample.error for sample in served.requests if sample.error]
    if failed:
        return True, f"a request failed: {failed[0]}"
    return _prove_early(residency, lease, len(armed) if isinstance(armed, list) else 0)


def never_loaded(process: TrialProcess, lease: Lease) -> str | None:
    """Why nothing of the change can have run in a process that has served; None: something may."""
    changed = list(lease.side_b.changed)
    if not (lease.plan.prove_engagement and changed):
        return None
    if process.ask("loaded", "block", lease.plan.limits.block_s, functions=changed) is not False:
        return None
    return (
        f"no module of {len(changed)} changed functions was imported when requests had been served"
    )


def _prove_early(residency: Residency, lease: Lease, armed: int) -> tuple[bool | None, str]:
    limits, side = lease.plan.limits, lease.side_b
    functions = list(side.changed)
    try:
        process = residency.bring(side, lease.plan.force_rung or side.rung, limits, arm=functions)
    except (EngagedError, TrialFailedError) as error:
        return True, f"the engine can't be built without it: {error}"
    try:
        process.ask("prepare", "prepare", limits.prepare_s)
    except (EngagedError, TrialFailedError) as error:
        return True, f"the engine can't be prepared without it: {error}"
    finally:
        process.end()
    if armed == 0:
        return None, f"none of {len(functions)} changed functions could be made to raise"
    return (
        False,
        f"no request needed any of {len(functions)} changed functions ({armed} were armed)",
    )
