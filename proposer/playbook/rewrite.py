"""What a rewrite is: a named change of the engine's sources with a few parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from proposer.playbook.edit import AnchorGoneError
from protos.candidate import Build, Scalar

__all__ = ["AnchorGoneError", "Change", "Parameter", "Rewrite"]

Sources = Mapping[str, str]  # path in the tree to text
Settings = Mapping[str, Scalar]


@dataclass(frozen=True)
class Parameter:
    """A choice a rewrite leaves open. The first value is the best guess."""

    name: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Change:
    """New or changed files (whole texts), and native libraries to build from them."""

    files: dict[str, str]
    builds: tuple[Build, ...] = ()
    knobs: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Rewrite:
    """A change that can be made to any tree that still holds its anchors.

    `edit` raises AnchorGoneError where it can't be made. `output_class` is the loosest class its
    outputs may need. `rationale` is one sentence: why it should win.
    """

    name: str
    rationale: str
    edit: Callable[[Sources, Settings], Change]
    parameters: tuple[Parameter, ...] = ()
    output_class: str = "equivalent"

    def applies(self, sources: Sources) -> bool:
        """Whether the tree still holds what this rewrite builds on."""
        try:
            self.rewrite(sources, self.best_guess())
        except AnchorGoneError:
            return False
        return True

    def rewrite(self, sources: Sources, settings: Settings) -> Change:
        """The change for these parameter values. Raises AnchorGoneError or ValueError."""
        self._check(settings)
        if "slim/engine.py" not in sources:
            raise AnchorGoneError("the playbook is for the slim engine")
        try:
            change = self.edit(sources, settings)
        except KeyError as gone:
            raise AnchorGoneError(f"there is no file {gone} any more") from gone
        changed = {path: text for path, text in change.files.items() if sources.get(path) != text}
        if not changed and not change.knobs:
            raise AnchorGoneError(f"{self.name} changes nothing here")
        return Change(changed, change.builds, change.knobs)

    def best_guess(self) -> dict[str, Scalar]:
        """The first value of every parameter."""
        return {parameter.name: parameter.values[0] for parameter in self.parameters}

    def settings(self) -> Iterator[dict[str, Scalar]]:
        """All combinations, the best guess first, then those that differ from it in least."""
        names = [parameter.name for parameter in self.parameters]
        ranks = itertools.product(*(range(len(p.values)) for p in self.parameters))
        for rank in sorted(ranks, key=lambda r: (sum(map(bool, r)), sum(r), r)):
            chosen = zip(self.parameters, rank, strict=True)
            yield dict(zip(names, (p.values[at] for p, at in chosen), strict=True))

    def label(self, settings: Settings) -> str:
        """`fused-step weights=huge`: the name and what differs from one setting to the next."""
        return " ".join(
            [self.name, *(f"{name}={_word(value)}" for name, value in settings.items())]
        )

    def _check(self, settings: Settings) -> None:
        known = {parameter.name: parameter.values for parameter in self.parameters}
        if settings.keys() != known.keys():
            raise ValueError(f"{self.name} takes {sorted(known)}, not {sorted(settings)}")
        for name, value in settings.items():
            if value not in known[name]:
                raise ValueError(f"{self.name}: {name} is one of {known[name]}, not {value!r}")


def _word(value: Scalar) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
