"""The scope of a change and the cheapest rung on which it can be tried. Pure.

It is computed, never declared, and errs on the slow side: hot only where exchanging function bodies
in a running engine gives the same engine as starting from the changed files.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from evaluator.astdiff import CONSTRUCTION, Function, diff_modules, functions_of, walk_functions

RUNGS = ("hot", "warm", "cold")
KNOB_RUNGS = {"live": "hot", "init": "warm", "process": "cold"}
# Files that decide what runs when; the rest computes.
SCHEDULER_FILES = frozenset(
    {"scheduler", "engine", "cache", "kv_cache", "blocks", "sampling", "sequence", "batch"}
)
LOADING = "load_weights"  # runs once in the zygote, before any engine


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
    for path in sorted(_python(change.old) | _python(change.new)):
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
    if _is_prepare(path):
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
    if not _is_prepare(path):
        found.changed.extend(f"{path}:{name}" for name in functions_of(source, path))


def _construction(change: Change, found: _Found) -> None:
    """Raise the rung where a changed function runs while an engine is built or weights load.

    A running engine has been through it with the old body. Names are followed without types, so
    this finds too many rather than too few. A class that is new has built nothing yet.
    """
    existing = _existing(change.old)
    loading = _reached(change, {name for name in existing if _bare(name) == LOADING}, False)
    building = _reached(change, {name for name in existing if _bare(name) in CONSTRUCTION}, True)
    for qualified in found.changed:
        if _bare(qualified) in CONSTRUCTION and qualified not in existing:
            continue
        if _bare(qualified) in loading:
            found.raise_to("cold", f"{qualified} runs while weights load")
        elif _bare(qualified) in building:
            found.raise_to("warm", f"{qualified} runs while an engine is built")
    found.changed = [name for name in found.changed if _bare(name) not in CONSTRUCTION]


def _bare(qualified: str) -> str:
    return qualified.rpartition(":")[2].rpartition(".")[2]


def _existing(tree: Mapping[str, str]) -> set[str]:
    return {f"{path}:{name}" for path in _python(tree) for name, _ in _functions(tree[path])}


def _reached(change: Change, roots: set[str], imports_too: bool) -> set[str]:
    """Bare names of the tree's functions that the roots reach, in either version, roots included.

    `imports_too`: what runs when the old tree's modules are imported is a root as well.
    """
    uses: dict[str, set[str]] = {}
    todo: set[str] = set()
    for tree in (change.old, change.new):
        for path in _python(tree):
            for name, node in _functions(tree[path]):
                uses.setdefault(_bare(name), set()).update(_used(node.body))
                if f"{path}:{name}" in roots:
                    todo.add(_bare(name))
            if imports_too and path in change.old and not _is_prepare(path):
                todo |= _used(_top_level(_parse(tree[path]).body))
    reached: set[str] = set()
    todo &= uses.keys()
    while todo:
        name = todo.pop()
        reached.add(name)
        todo |= (uses[name] & uses.keys()) - reached
    return reached


@lru_cache(maxsize=128)
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


@lru_cache(maxsize=128)
def _functions(source: str) -> tuple[tuple[str, Function], ...]:
    return tuple(walk_functions(_parse(source).body))


def _top_level(body: Iterable[ast.stmt]) -> list[ast.AST]:
    """Everything that runs at import: statements, class bodies, decorators and defaults."""
    found: list[ast.AST] = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            found += [*node.bases, *node.decorator_list, *_top_level(node.body)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defaults = [d for d in node.args.kw_defaults if d is not None]
            found += [*node.decorator_list, *node.args.defaults, *defaults]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
    return found


def _used(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                names.add(inner.id)
            elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load):
                names.add(inner.attr)
    return names


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


def _python(tree: Mapping[str, str]) -> set[str]:
    return {path for path in tree if path.endswith(".py")}


def _is_prepare(path: str) -> bool:
    return "/prepare/" in path
