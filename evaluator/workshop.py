"""Checking a candidate and building what it needs, without holding up the room."""

import asyncio
from pathlib import Path

from evaluator.build import BuildRefused, BuildTrouble, build_library
from evaluator.check import Checked, CheckRefused, check
from protos.candidate import Candidate, Check
from protos.messages import CheckCandidate
from services.blobs import Blobs
from services.clock import Clock
from services.errors import BlobError, TroubleError


class Workshop:
    """`folder` keeps what was built. Builds are idle-time work: one after another."""

    def __init__(self, blobs: Blobs, clock: Clock, folder: Path) -> None:
        self._blobs, self._clock, self._folder = blobs, clock, folder
        self._building = asyncio.Semaphore(1)

    async def check(self, command: CheckCandidate) -> Check:
        """What is found of a candidate. Raises TroubleError when this machine can't tell."""
        candidate, begun_s = command.candidate, self._clock.monotonic_s()
        try:
            checked = await asyncio.to_thread(
                check, candidate, command.release, command.space, self._blobs
            )
            checked_s = self._clock.monotonic_s()
            libraries = await self._build(checked)
        except (CheckRefused, BuildRefused) as error:
            return refused(candidate, str(error), self._clock.monotonic_s() - begun_s)
        except (BuildTrouble, BlobError) as error:
            raise TroubleError(str(error)) from error
        return Check(
            candidate=candidate.id,
            ok=True,
            rung=checked.scope.rung,
            scope=checked.scope.word,
            changed=checked.scope.changed,
            libraries=libraries,
            check_s=checked_s - begun_s,
            build_s=self._clock.monotonic_s() - checked_s if libraries else 0.0,
        )

    async def _build(self, checked: Checked) -> dict[str, str]:
        if not checked.builds:
            return {}
        native = {p: d for p, d in checked.files.items() if p.endswith((".c", ".h"))}
        libraries = {}
        async with self._building:
            sources = {path: self._blobs.get(digest) for path, digest in native.items()}
            for build in checked.builds:
                libraries[build.name] = await asyncio.to_thread(
                    build_library, build, sources, self._blobs, self._folder
                )
        return libraries


def refused(candidate: Candidate, reason: str, check_s: float = 0.0) -> Check:
    """The check of a candidate that can't be tried, and why."""
    return Check(candidate.id, ok=False, reason=reason, scope="none", check_s=check_s)
