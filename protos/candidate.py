"""Candidates and what checking one finds.

A candidate is one content-addressed change to a base release: whole files by blob, knobs, native
sources to build. Unified diffs are a view, made at the door.
"""

from __future__ import annotations

from protos.base import Value
from protos.ids import short_id

Scalar = bool | int | float | str

MAX_SOURCE_BYTES = 2_000_000  # all files of one candidate together
MAX_FILES = 64


class Build(Value, frozen=True, tag="build"):
    """A native library: C sources of the tree and compiler flags. Built to `lib<name>.so`."""

    name: str
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ("-O3",)


class Cost(Value, frozen=True, tag="cost"):
    """What making the proposal cost."""

    wall_s: float = 0.0
    llm_tokens: int = 0
    llm_usd: float = 0.0


class Candidate(Value, frozen=True, tag="candidate"):
    """One change to a base release.

    `files` maps a path in the tree (`slim/model.py`) to a blob digest, or to null to delete it.
    `knobs` are merged over the base release's. `builds` are merged by name over the base's.
    `arm` is the scheduler's accounting unit (`search`, `random`); `output_class` is the proposer's
    claim, which checking and grading may only tighten.
    """

    campaign: str
    base: str
    files: dict[str, str | None] = {}
    knobs: dict[str, Scalar] = {}
    builds: tuple[Build, ...] = ()
    output_class: str = "equivalent"
    proposer: str = ""
    strategy: str = ""
    arm: str = "search"
    label: str = ""
    rationale: str = ""
    parents: tuple[str, ...] = ()
    cost: Cost = Cost()

    @property
    def id(self) -> str:
        """`c` + 12 hex digits of what the change is (not of who made it or why)."""
        return short_id(
            "c", self.campaign, self.base, self.files, self.knobs, self.builds, self.arm
        )


class Check(Value, frozen=True, tag="check"):
    """What the evaluator found without running the candidate. `reason` says why it was refused.

    `rung` is the cheapest valid one, computed from the AST; `changed` are qualified function names
    (`slim/model.py:Model.decode`) used for the engagement proof; `libraries` maps library name to
    the blob digest of the built shared object.
    """

    candidate: str
    ok: bool
    reason: str = ""
    rung: str = "warm"  # hot | warm | cold
    scope: str = (
        "module_level"  # knob | scheduler_function | model_function | module_level | native | none
    )
    changed: tuple[str, ...] = ()
    libraries: dict[str, str] = {}
    check_s: float = 0.0
    build_s: float = 0.0
