"""Campaigns of a few winners, one after the other, and what an export makes of the last."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protos import events as e
from protos.candidate import Build, Candidate, Scalar
from protos.messages import OpenCampaign
from protos.release import EngineFacts, Release
from protos.target import Budget, Objective, Target, Workload
from recorded_campaign import Recording
from services.export import export_files, write_files
from services.report.record import fold

CAMPAIGN = "chat-20261130-1912"
Contents = Mapping[str, bytes | None]


@dataclass
class Winner:
    """What one candidate changed; None takes a file away."""

    files: Contents
    knobs: Mapping[str, Scalar]
    label: str = "a change"
    why: str = "fewer passes over memory a token"


class Campaign:
    """A recorded campaign of one engine, promoted step by step."""

    def __init__(
        self,
        engine: str,
        files: Mapping[str, bytes],
        knobs: Mapping[str, Scalar] | None = None,
        space: Any = (),
        version: str | None = None,
    ) -> None:
        opening = OpenCampaign(
            CAMPAIGN,
            Target(engine, "smollm2"),
            Workload("chat"),
            Objective("output_tok_s"),
            Budget(300.0),
        )
        self.recording = Recording(opening=opening)
        self.blobs = self.recording.blobs
        digests = {path: self.blobs.put(content) for path, content in files.items()}
        self.last = self.recording.start = Release(CAMPAIGN, 0, digests, dict(knobs or {}))
        facts = EngineFacts(
            engine, "cpu", digests, json.dumps(space), None, {"max_context": 8192}, version=version
        )
        ready = e.CampaignReady(CAMPAIGN, "host0", facts, self.last, 1.0)
        self.recording.add("campaign", CAMPAIGN, e.CampaignOpened(opening))
        self.recording.add("campaign", CAMPAIGN, ready)

    def promote(self, winner: Winner, builds: tuple[Build, ...] = ()) -> None:
        """One more winner over the release before."""
        base, files = self.last, dict(self.last.files)
        change = {
            path: self.blobs.put(content) if content is not None else None
            for path, content in winner.files.items()
        }
        for path, digest in change.items():
            if digest is None:
                files.pop(path)
            else:
                files[path] = digest
        candidate = Candidate(
            CAMPAIGN,
            base.id,
            change,
            dict(winner.knobs),
            builds,
            strategy="playbook",
            label=winner.label,
            rationale=winner.why,
        )
        self.recording.admit(candidate)
        knobs = {**base.knobs, **winner.knobs}
        self.last = Release(
            CAMPAIGN, base.number + 1, files, knobs, builds, {}, base.id, candidate.id
        )
        self.recording.add("release", self.last.id, e.ReleasePromoted(self.last, ()))

    def export(
        self, to: Path, installed: Callable[[str], bytes | None] = lambda path: None
    ) -> dict[str, Any]:
        """Write the last release's export; its `export.json`."""
        record = fold(CAMPAIGN, self.recording.events)
        write_files(export_files(record, self.last, self.blobs, installed), to)
        facts: dict[str, Any] = json.loads((to / "export.json").read_text())
        return facts


@pytest.fixture
def campaign() -> type[Campaign]:
    return Campaign


@pytest.fixture
def winner() -> type[Winner]:
    return Winner
