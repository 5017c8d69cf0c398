"""From a proposal to the candidate that is sent. Pure."""

from __future__ import annotations

from proposer.strategies.base import Context, Proposal
from protos.candidate import Candidate, Cost
from protos.ids import digest_bytes


def blobs_of(proposal: Proposal) -> list[bytes]:
    """The contents that have to be stored for the candidate."""
    return [text.encode() for text in proposal.files.values() if text is not None]


def candidate_of(
    context: Context,
    proposal: Proposal,
    strategy: str,
    arm: str,
    proposer: str = "",
    wall_s: float = 0.0,
) -> Candidate:
    """The candidate: files by digest, knobs that differ from nothing left out."""
    files = {
        path: None if text is None else digest_bytes(text.encode())
        for path, text in sorted(proposal.files.items())
    }
    return Candidate(
        campaign=context.campaign,
        base=context.base.id,
        files=files,
        knobs=dict(sorted(proposal.knobs.items())),
        builds=tuple(sorted(proposal.builds, key=lambda build: build.name)),
        output_class=proposal.output_class,
        proposer=proposer,
        strategy=strategy,
        arm=arm,
        label=proposal.label,
        rationale=proposal.rationale,
        parents=proposal.parents,
        cost=Cost(wall_s=wall_s),
    )


def candidate_id(context: Context, proposal: Proposal, arm: str) -> str:
    """The id that the candidate of this proposal will have."""
    return candidate_of(context, proposal, "", arm).id
