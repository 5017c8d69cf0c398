"""Hot swap: make a running engine follow a change of its sources, never re-running module code.

Bodies of changed functions are replaced in place (`__code__`), so that every reference to them,
bound or imported elsewhere, follows. What can't be followed faithfully raises NotHot.
"""

from __future__ import annotations

import ast
import functools
import gc
import sys
from collections.abc import Collection, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .astdiff import Changed, FileDiff, NotHot, Scope, diff
from .tree import Tree, module_name

__all__ = ["NotHot", "apply_changes", "resolve"]

_CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__")
_IMMEDIATE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
Ran = Collection[tuple[str, str]]


def apply_changes(
    tree: Tree,
    files: Mapping[str, str | None],
    ran_at_build: Ran = frozenset(),
    *,
    built: bool = True,
) -> list[str]:
    """Follow `files` (path to new text; None deletes) in the modules that are already imported.

    `ran_at_build`: (file name, qualified name) of functions whose results the running engine was
    built from; changing one wouldn't change the engine. Not `built`: nothing has been constructed
    yet, so constructors may change. Returns the qualified names changed or added. Raises NotHot,
    SyntaxError, or what an added statement raises.
    """
    plans: dict[str, FileDiff] = {}
    for path, text in files.items():
        if not path.endswith(".py") or module_name(path) not in sys.modules:
            continue
        if text is None or path not in tree.sources:
            raise NotHot(f"deletes {path}, which is in use")
        plans[path] = diff(tree.sources[path], text)
    for path, plan in plans.items():
        for change in plan.changed:
            _refuse_built(tree.filename(path), change, ran_at_build, built)
    old_code = {path: tree.code(path) for path, plan in plans.items() if plan.changed}
    tree.overlay(files)
    _add_all(tree, plans)
    for path, plan in plans.items():
        for change in plan.changed:
            _replace(tree, path, change, old_code[path])
    return [f"{path}:{name}" for path, plan in plans.items() for name in plan.functions]


def _refuse_built(filename: str, change: Changed, ran_at_build: Ran, built: bool) -> None:
    if built and change.new.name in _CONSTRUCTORS:
        raise NotHot(f"changes the constructor {change.qualname}")
    if (filename, change.qualname) in ran_at_build:
        what = "the engine was built" if built else "modules were imported"
        raise NotHot(f"changes {change.qualname}, which ran while {what}")


def _add_all(tree: Tree, plans: Mapping[str, FileDiff]) -> None:
    """Make every addition; a file may import what another one adds, so failures wait a round."""
    waiting = {path: plan for path, plan in plans.items() if plan.added}
    while waiting:
        failed: dict[str, ImportError] = {}
        for path, plan in waiting.items():
            try:
                for scope, statements in plan.added.items():
                    _add(tree, path, scope, statements)
            except ImportError as error:
                failed[path] = error
        if len(failed) == len(waiting):
            raise next(iter(failed.values()))
        waiting = {path: plans[path] for path in failed}


def _add(tree: Tree, path: str, scope: Scope, statements: list[ast.stmt]) -> None:
    module = sys.modules[module_name(path)]
    filename = tree.filename(path)
    if not scope:
        body = ast.Module(body=list(statements), type_ignores=[])
        exec(
            compile(body, filename, "exec", dont_inherit=True, flags=_future(module)), vars(module)
        )
        return
    owner = _owner(module, scope)
    node: ast.stmt = ast.ClassDef(scope[-1], [], [], list(statements), [])
    for name in reversed(scope[:-1]):
        node = ast.ClassDef(name, [], [], [node], [])
    body = ast.Module(body=[ast.fix_missing_locations(node)], type_ignores=[])
    made: dict[str, Any] = {}
    exec(
        compile(body, filename, "exec", dont_inherit=True, flags=_future(module)),
        vars(module),
        made,
    )
    stand_in = made[scope[0]]
    for name in scope[1:]:
        stand_in = vars(stand_in)[name]
    _move_members(stand_in, owner)


def _move_members(stand_in: type, owner: type) -> None:
    for name, value in list(vars(stand_in).items()):
        if name in ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"):
            continue
        function = _unwrapped(value)
        if function is not None and function.__closure__:
            for variable, cell in zip(
                function.__code__.co_freevars, function.__closure__, strict=True
            ):
                if variable == "__class__":
                    cell.cell_contents = owner
        setattr(owner, name, value)


def _future(module: ModuleType) -> int:
    found = vars(module).get("annotations")
    return int(getattr(found, "compiler_flag", 0))


def _replace(tree: Tree, path: str, change: Changed, old_module: CodeType) -> None:
    module = sys.modules[module_name(path)]
    function = resolve(module, change.qualname, tree.filename(path))
    code = _find(tree.code(path), change.qualname)
    old = _find(old_module, change.qualname)
    if function is None or code is None or old is None:
        raise NotHot(f"changes {change.qualname}, which can't be reached in place")
    if code.co_freevars != function.__code__.co_freevars:
        raise NotHot(f"changes which outer names {change.qualname} uses")
    _replace_inner(old, code)
    if change.defaults_differ:
        _set_defaults(module, change, function)
    function.__code__ = code


def _replace_inner(old: CodeType, new: CodeType) -> None:
    """Functions made inside the old body that still live somewhere follow the new body too."""
    changed = _changed_inner(old, new)
    if not changed:
        return
    gc.unfreeze()
    for live in gc.get_referrers(*changed):
        if isinstance(live, FunctionType) and live.__code__ in changed:
            inner, twin = live.__code__, changed[live.__code__]
            if twin is None or twin.co_freevars != inner.co_freevars:
                raise NotHot(f"changes {inner.co_qualname}, of which one is in use")
            live.__code__ = twin


def _changed_inner(old: CodeType, new: CodeType) -> dict[CodeType, CodeType | None]:
    """Inner code that differs, with what takes its place; None: that can't be told."""
    olds, news = _by_name(_inner(old)), _by_name(_inner(new))
    changed: dict[CodeType, CodeType | None] = {}
    for name, before in olds.items():
        after = news.get(name, [])
        if len(before) == len(after) and all(map(_same_but_lines, before, after)):
            continue
        known = len(before) == len(after) == 1
        changed |= dict.fromkeys(before, after[0] if known else None)
    return changed


def _by_name(codes: list[CodeType]) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = {}
    for code in codes:
        found.setdefault(code.co_qualname, []).append(code)
    return found


def _same_but_lines(old: CodeType, new: CodeType) -> bool:
    """Whether they differ in lines at most: a look at every living object isn't worth that."""
    return old == new.replace(co_firstlineno=old.co_firstlineno, co_linetable=old.co_linetable)


def _inner(code: CodeType) -> list[CodeType]:
    found: list[CodeType] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name not in _IMMEDIATE:
                found.append(constant)
            found += _inner(constant)
    return found


def _set_defaults(module: ModuleType, change: Changed, function: FunctionType) -> None:
    names = dict(vars(_owner(module, change.scope))) if change.scope else {}

    def value(node: ast.expr) -> Any:
        return eval(
            compile(ast.Expression(node), module.__file__ or "", "eval"), vars(module), names
        )

    arguments = change.new.args
    function.__defaults__ = tuple(value(d) for d in arguments.defaults) or None
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    function.__kwdefaults__ = {a.arg: value(d) for a, d in pairs if d is not None} or None


def _owner(module: ModuleType, scope: Scope) -> type:
    found: Any = module
    for name in scope:
        found = vars(found).get(name)
        if not isinstance(found, type):
            raise NotHot(f"changes class {'.'.join(scope)}, which can't be reached in place")
    owner: type = found
    return owner


def resolve(module: ModuleType, qualname: str, filename: str) -> FunctionType | None:
    """The live function of that name, through wrappers that say what they wrap; None: hidden."""
    *scope, name = qualname.split(".")
    holder: Any = module
    for part in scope:
        holder = vars(holder).get(part)
        if not isinstance(holder, type):
            return None
    function = _unwrapped(vars(holder).get(name))
    if function is None:
        return None
    code = function.__code__
    return function if (code.co_filename, code.co_qualname) == (filename, qualname) else None


def _unwrapped(value: Any) -> FunctionType | None:
    while value is not None and not isinstance(value, FunctionType):
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        else:
            return None  # a compiled or otherwise wrapped object: its insides may hold the old code
    while isinstance(value, FunctionType) and hasattr(value, "__wrapped__"):
        if hasattr(value, "_torchdynamo_orig_callable"):
            return None
        value = value.__wrapped__
    return value if isinstance(value, FunctionType) else None


def _find(code: CodeType, qualname: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualname:
                return constant
            if qualname.startswith(constant.co_qualname + "."):
                found = _find(constant, qualname)
                if found is not None:
                    return found
    return None
