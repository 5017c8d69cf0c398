"""Small readings of what comes in at the door and goes out again."""

from __future__ import annotations

from protos import events as e
from protos.messages import OpenCampaign
from protos.target import ENGINES, WORKLOADS


def unopenable(opening: OpenCampaign) -> str | None:
    """Why the campaign can't be opened, as a line that says what to do; None where it can."""
    target, workload, policy = opening.target, opening.workload, opening.policy
    if target.engine not in ENGINES:
        return f"unknown engine {target.engine!r}: use one of {', '.join(ENGINES)}"
    if workload.name not in WORKLOADS:
        return f"unknown workload {workload.name!r}: use one of {', '.join(WORKLOADS)}"
    if workload.name == "trace" and workload.trace is None:
        return "the workload `trace` needs a trace file"
    if not 0.0 <= policy.control_share <= 1.0:
        return f"control_share must lie between 0 and 1, not {policy.control_share}"
    return None


def about(event: object) -> tuple[str, ...]:
    """The candidates that an event is about."""
    match event:
        case e.TrialEnded():
            ids = (event.verdict.candidate,)
        case e.TrialGranted():
            ids = (event.lease.side_b.candidate,)
        case e.CandidateChecked():
            ids = (event.check.candidate,)
        case e.CandidateRebased():
            ids = (event.candidate,)
        case e.ReleasePromoted():
            ids = (event.release.candidate,)
        case _:
            ids = (None,)
    return tuple(id for id in ids if id is not None)
