"""The scope of a change and the cheapest rung on which it can be tried. Pure.

It is computed, never declared, and errs on the slow side: hot only where exchanging function bodies
in a running engine gives the same engine as starting from the changed files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluator.astdiff import CONSTRUCTION, diff_modules, functions_of
from evaluator.construction import (
    bare,
    functions_in,
    is_prepare,
    packages,
    python_files,
    run_while_building,
    run_while_loading,
)

RUNGS = ("hot", "warm", "cold")
KNOB_RUNGS = {"live": "hot", "init": "warm", "process": "cold"}
# Files that decide what runs when; the rest computes.
SCHEDULER_FILES = frozenset(
    {"scheduler", "engine", "cache", "kv_cache", "blocks", "sampling", "sequence", "batch"}
)


@dataclass(frozen=True)
class Scope:
    """`word` is the scope, `changed` the qualified functions whose running can be proved."""

    rung: str
    word: str
    changed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass
class _Found:
    rung: str = "hot"
    module_level: bool = False
    native: bool = False
    touched: bool = False
    changed: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def raise_to(self, rung: str, reason: str) -> None:
        if RUNGS.index(rung) > RUNGS.index(self.rung):
            self.rung = rung
        self.reasons.append(reason)


@dataclass(frozen=True)
class Change:
    """Two whole trees (path to text), what differs in knobs (name to its rung), and in libraries.

    `libraries_changed` maps the name of each library that is built anew to whether the base release
    has a library of that name.
    """

    old: Mapping[str, str]
    new: Mapping[str, str]
    knobs: Mapping[str, str] = field(default_factory=dict)
    libraries_changed: Mapping[str, bool] = field(default_factory=dict)


def scope_of(change: Change) -> Scope | None:
    """The scope of a change; None when it changes nothing that runs. Sources must compile."""
    found = _Found()
    for name, rung in sorted(change.knobs.items()):
        found.raise_to(KNOB_RUNGS[rung], f"knob {name} is a {rung} knob")
    for name, existed in sorted(change.libraries_changed.items()):
        found.native = found.touched = True
        if existed:
            found.raise_to("warm", f"library {name} is already loaded")
    for path in sorted(python_files(change.old) | python_files(change.new)):
        _compare(path, change, found)
    if not found.touched and not change.knobs:
        return None
    _construction(change, found)
    return Scope(found.rung, _word(found), tuple(found.changed), tuple(found.reasons))


def _compare(path: str, change: Change, found: _Found) -> None:
    old, new = change.old.get(path), change.new.get(path)
    if old == new:
        return
    if old is None and new is not None:
        _added_file(path, new, change, found)
        return
    if new is None:
        found.touched = found.module_level = True
        found.raise_to("warm", f"{path}: the file was removed")
        return
    diff = diff_modules(path, old or "", new)
    if diff.empty:
        return
    found.touched = True
    if diff.rerun:
        found.module_level = True
        for reason in diff.rerun:
            found.raise_to("warm", reason)
    if is_prepare(path):
        found.raise_to("warm", f"{path}: this preparation step has already run")
        return
    found.changed.extend(f"{path}:{name}" for name in (*diff.changed, *diff.added))


def _added_file(path: str, source: str, change: Change, found: _Found) -> None:
    found.touched = True
    folder = path.removesuffix("/__init__.py") + ".py"
    package = path.removesuffix(".py") + "/__init__.py"
    if (path.endswith("/__init__.py") and folder in change.old) or package in change.old:
        found.module_level = True
        found.raise_to("warm", f"{path}: another module has this name")
    if not is_prepare(path):
        found.changed.extend(f"{path}:{name}" for name in functions_of(source, path))
    elif any(is_prepare(other) and other > path for other in change.old):
        found.raise_to("warm", f"{path}: it would run before a step that has already run")


def _construction(change: Change, found: _Found) -> None:
    """Raise the rung where a changed function ran before the running engine could serve.

    Files laid over a package that the tree holds only in part can't be followed by name: of those
    only constructors are known here, and the engine's process refuses what else it has seen run.
    """
    old, new = packages(change.old), packages(change.new)
    existing = functions_in(old)
    loading = run_while_loading(old, new)
    building = run_while_building(old, new)
    for qualified in found.changed:
        if qualified.partition(":")[0] not in new:
            if bare(qualified) in CONSTRUCTION:
                found.raise_to("warm", f"{qualified} runs while an engine is built")
            continue
        if bare(qualified) in CONSTRUCTION and qualified not in existing:
            continue  # of a class that is new
        if qualified in loading:
            found.raise_to("cold", f"{qualified} runs while weights load")
        elif qualified in building:
            found.raise_to("warm", f"{qualified} runs while an engine is built")
    found.changed = [name for name in found.changed if bare(name) not in CONSTRUCTION]


def _word(found: _Found) -> str:
    if found.native:
        return "native"
    if found.module_level:
        return "module_level"
    if not found.touched:
        return "knob"
    paths = {name.partition(":")[0] for name in found.changed}
    stems = {path.rpartition("/")[2].removesuffix(".py") for path in paths}
    return "scheduler_function" if stems and stems <= SCHEDULER_FILES else "model_function"
