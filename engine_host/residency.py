"""The engines one target keeps up: the start, the incumbent, a bare one, and the reference.

Everything here blocks and runs in the host's one measuring thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_host import compiled, trees
from engine_host.errors import EngineLostError, NotHotError
from engine_host.loading import Tree, lay_out_libraries, patch
from engine_host.strategies import Resident, Strategy
from engine_host.trial_process import TrialProcess
from engine_host.zygotes import CONFINED, KINDS, ChildSpec, Exposure, start_cold
from protos.candidate import Scalar
from protos.trial import Limits, Side
from services.blobs import Blobs

SLOWER = {"hot": "warm", "warm": "cold"}  # where a change goes that a rung can't take
KEPT_RELEASES = 2  # warm engines beside the start's
REFERENCE_LIMITS = Limits(start_s=60.0, memory_bytes=16_000_000_000)


def golden_requests(vocab: int) -> tuple[dict[str, Any], ...]:
    """Fixed requests that warm an engine and, by their tokens, prove that it is still itself.

    Their lengths are the row counts of short prompts: kernels made for a shape at its first use are
    then inherited by every fork, not paid for by whichever side meets the shape first.
    """
    span = max(1, min(vocab, 400) - 8)
    lengths = ((5, 4), (48, 8), *((length, 1) for length in range(6, 18)))
    return tuple(
        {"id": number, "prompt": [8 + (37 * i) % span for i in range(length)], "max_tokens": output}
        for number, (length, output) in enumerate(lengths)
    )


@dataclass
class Model:
    """A prepared model: its weights folder, its facts, the precision it is served in."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    precision: str = "bfloat16"

    @property
    def vocab(self) -> int:
        return int(self.facts.get("vocab") or 512)


class Residency:
    """Starts, keeps, gives out engines. `on_built(release, reason, wall_s)` hears of each start."""

    def __init__(
        self,
        engine: str,
        model: Model,
        start: Side,
        blobs: Blobs,
        home: Path,
        strategy: Strategy,
        exposure: Exposure = CONFINED,
        on_built: Callable[[str, str, float], None] = lambda *_: None,
        archives: bool = True,
    ) -> None:
        self.engine, self.model, self.start = engine, model, start
        self._blobs, self._home, self._strategy = blobs, home, strategy
        self._on_built = on_built
        self._exposure, self._archives = exposure, archives
        self._warm: dict[str, Resident] = {}
        self._trees: dict[str, Tree] = {start.release: Tree.of(start)}
        self._bare: Resident | None = None
        self._reference: Resident | None = None
        self._scorer: TrialProcess | None = None
        self._kept: dict[str, TrialProcess] = {}

    def bring_up(self) -> None:
        """Start what every trial needs, all at the same time.

        Raises EngineLostError or UnprotectedError.
        """
        began_s = time.monotonic()
        begun = [
            self._begin("warm", self._trees[self.start.release]),
            self._begin("bare", self._trees[self.start.release]),
            self._begin("warm", self._trees[self.start.release], "float32"),
        ]
        try:
            for resident in begun:
                resident.wait()
        except BaseException:
            for resident in begun:
                resident.close()
            raise
        self._warm[self.start.release], self._bare, self._reference = begun
        self._keep_compiled(begun[0])
        self._on_built(self.start.release, "start", time.monotonic() - began_s)

    def learn(self, side: Side) -> None:
        """A side without a candidate is a release: remember its tree."""
        if side.candidate is None and not side.delta:
            self._trees[side.release] = Tree.of(side)

    def incumbent(self, side: Side, limits: Limits) -> tuple[TrialProcess, bool]:
        """The A side's engine, kept across candidates and frozen while nobody times it.

        Also whether it is fresh: it has served nothing yet.
        """
        self.learn(side)
        kept = self._kept.get(side.release)
        if kept is not None and kept.alive():
            return kept, False
        self.forget_kept()
        process = self._fork(side.release, limits)
        process.rung = "hot"
        process.freeze()
        self._kept[side.release] = process
        return process, True

    def candidate(self, side: Side, rung: str, limits: Limits) -> TrialProcess:
        """A fresh process of that rung with the side's tree not yet loaded (see `load`)."""
        self.learn(side)
        if rung == "hot" and side.release in self._trees:
            process = self._fork(side.release, limits)
        elif rung == "cold":
            process = self.cold(side, limits)
        else:
            rung, process = "warm", self.bare().take(limits)[0]
        process.rung = rung
        return process

    def load(self, process: TrialProcess, side: Side, limit_s: float, **more: Any) -> None:
        """Load the side's tree into a fresh process. Raises NotHotError or TrialFailedError."""
        self.begin_load(process, side, limit_s, **more)
        self.loaded(process, side, limit_s)

    def begin_load(self, process: TrialProcess, side: Side, limit_s: float, **more: Any) -> None:
        """Send the side's tree without waiting for it to be loaded."""
        wanted = Tree.of(side)
        if process.rung == "cold":
            base = wanted  # it lies on disk already
        else:
            base = self._trees[side.release if process.rung == "hot" else self.start.release]
        change = patch(base, wanted, self._blobs)
        same = self._archive(base) == self._archive(wanted)
        more["same_compiled"] = same
        process.send({"op": "load", **change, **more}, "start", limit_s)

    def loaded(self, process: TrialProcess, side: Side, limit_s: float) -> None:
        """Wait for a load that has begun. Raises NotHotError or TrialFailedError."""
        limit_s = max(limit_s, KINDS[self.engine].load_s)
        process.answer("load", "start", limit_s)
        if process.rung != "hot":
            compiled.keep(process, self._archive(Tree.of(side)), limit_s)

    def bring(self, side: Side, rung: str, limits: Limits, **more: Any) -> TrialProcess:
        """A process with the side loaded, on this rung or, where it can't be hot, warm."""
        process = self.candidate(side, rung, limits)
        try:
            self.load(process, side, limits.start_s, **more)
        except NotHotError:
            process.end()
            return self.bring(side, SLOWER[process.rung], limits, **more)
        except BaseException:
            process.end()
            raise
        return process

    def cold(self, side: Side, limits: Limits) -> TrialProcess:
        """A new interpreter on the side's tree, laid out on disk."""
        return start_cold(self._spec(Tree.of(side)), limits)

    def bare(self) -> Resident:
        """Imports done and weights in memory, no engine: where warm trials come from."""
        if self._bare is None or not self._bare.alive():
            self._bare = self._begin("bare", self._trees[self.start.release])
            self._bare.wait()
        return self._bare

    def reference(self) -> TrialProcess:
        """The start release in float32, which scores outputs. Frozen between uses by its user."""
        if self._scorer is None or not self._scorer.alive():
            if self._reference is None or not self._reference.alive():
                tree = self._trees[self.start.release]
                self._reference = self._begin("warm", tree, "float32")
                self._reference.wait()
            (self._scorer,) = self._reference.take(REFERENCE_LIMITS)
            self._scorer.freeze()
        return self._scorer

    def rebuild(self, release: str, reason: str) -> None:
        """Throw a release's engine away with every trial from it, and start it anew."""
        self.forget_kept()
        found = self._warm.pop(release, None)
        if found is not None:
            found.close()
        self._resident(release, reason)

    def residents(self) -> dict[str, Resident]:
        """The warm engines by release."""
        return dict(self._warm)

    def tree(self, release: str) -> Tree:
        return self._trees[release]

    def refill(self) -> None:
        for resident in self._warm.values():
            resident.refill()

    def forget_kept(self) -> None:
        for process in self._kept.values():
            process.end()
        self._kept.clear()

    def others(self, but: TrialProcess) -> list[TrialProcess]:
        """Every other living process that must stay frozen while `but` is timed."""
        found = [*self._kept.values(), *([self._scorer] if self._scorer else [])]
        return [process for process in found if process is not but]

    def close(self) -> None:
        self.forget_kept()
        if self._scorer is not None:
            self._scorer.end()
        for resident in (*self._warm.values(), self._bare, self._reference):
            if resident is not None:
                resident.close()
        self._warm.clear()
        self._bare = self._reference = self._scorer = None

    def _fork(self, release: str, limits: Limits) -> TrialProcess:
        try:
            return self._resident(release, "start").take(limits)[0]
        except EngineLostError:
            self.rebuild(release, "doubt")
            return self._warm[release].take(limits)[0]

    def _resident(self, release: str, reason: str) -> Resident:
        found = self._warm.pop(release, None)
        if found is None or not found.alive():
            if found is not None:
                found.close()
                reason = "doubt"
            began_s = time.monotonic()
            found = self._begin("warm", self._trees[release])
            found.wait()
            self._keep_compiled(found)
            if release != self.start.release and reason == "start":
                reason = "promotion"
            self._on_built(release, reason, time.monotonic() - began_s)
        self._warm[release] = found  # last: used most recently
        for old in [r for r in self._warm if r != self.start.release][:-KEPT_RELEASES]:
            self._warm.pop(old).close()
        return found

    def _keep_compiled(self, resident: Resident) -> None:
        """What a new engine compiled, for later starts of the same code."""
        where = resident.spec.compiled
        if where and not Path(where).exists():
            (process,) = resident.take(REFERENCE_LIMITS)
            compiled.keep(process, where, REFERENCE_LIMITS.start_s)
            process.end()

    def _archive(self, tree: Tree) -> str:
        """Where compiled code of a tree is kept; empty: nowhere."""
        if not self._archives:
            return ""
        model, kind = self.model, KINDS[self.engine]
        return compiled.archive(self._home, kind, tree, model.folder.name, model.precision)

    def _begin(self, kind: str, tree: Tree, precision: str | None = None) -> Resident:
        return self._strategy.start(self._spec(tree, precision), kind)

    def _spec(self, tree: Tree, precision: str | None = None) -> ChildSpec:
        folder = trees.lay_out(dict(tree.files), self._blobs, self._home)
        return ChildSpec(
            engine=self.engine,
            tree=str(folder),
            weights=str(self.model.folder),
            knobs=dict(tree.knobs) if precision is None else self._reference_knobs(tree),
            libraries=lay_out_libraries(tree.libraries, self._blobs, self._home),
            precision=precision or self.model.precision,
            warm_up=golden_requests(self.model.vocab),
            exposure=self._exposure,
            compiled=self._archive(tree) if precision is None else "",
        )

    def _reference_knobs(self, tree: Tree) -> dict[str, Scalar]:
        return {**tree.knobs, **dict(KINDS[self.engine].reference_knobs)}
