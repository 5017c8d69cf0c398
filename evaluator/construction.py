"""Which functions of a tree run while modules load, weights load or an engine is built. Pure.

Names are followed without types, so this finds too many rather than too few; a running engine has
been through these functions with their old bodies. The engine's own process notes what really ran,
and refuses to exchange that: what is missed here costs one more start, never a wrong measurement.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import lru_cache

from evaluator.astdiff import CONSTRUCTION, Function, walk_functions

LOADING = "load_weights"  # runs once in the zygote, before any engine
Tree = Mapping[str, str]  # path to source text


def is_prepare(path: str) -> bool:
    """Whether a file is a preparation step: it runs after the engine exists, before it serves."""
    return "/prepare/" in path


def bare(qualified: str) -> str:
    """`decode` of `slim/model.py:Model.decode`."""
    return qualified.rpartition(":")[2].rpartition(".")[2]


def functions_in(tree: Tree) -> set[str]:
    """Qualified names of all functions of a tree."""
    return {f"{path}:{name}" for path in python_files(tree) for name, _ in _functions(tree[path])}


def packages(tree: Tree) -> Tree:
    """The files of packages that the tree holds whole: those with their `__init__.py`."""
    whole = {path.partition("/")[0] for path in tree if path.count("/") == 1 and _is_init(path)}
    return {path: text for path, text in tree.items() if path.partition("/")[0] in whole}


def _is_init(path: str) -> bool:
    return path.endswith("/__init__.py")


def python_files(tree: Tree) -> set[str]:
    return {path for path in tree if path.endswith(".py")}


def run_while_loading(old: Tree, new: Tree) -> set[str]:
    """Qualified names, in either version, of what loading the weights reaches."""
    roots = {name for name in functions_in(old) if bare(name) == LOADING}
    return _reached(old, new, roots, set(), inner=True)


def run_while_building(old: Tree, new: Tree) -> set[str]:
    """Qualified names, in either version, of what importing, building and preparing reaches.

    Constructors and preparation steps count where the old tree has them: what is new has built
    nothing yet.
    """
    roots = {name for name in functions_in(old) if _builds(name)}
    names: set[str] = set()
    for tree in (old, new):
        for path in python_files(tree) & old.keys():
            names |= _uses(tree[path])
    return _reached(old, new, roots, names, inner=False)


def _builds(qualified: str) -> bool:
    path, _, name = qualified.partition(":")
    return bare(name) in CONSTRUCTION or (is_prepare(path) and name == "prepare")


def _reached(old: Tree, new: Tree, roots: set[str], names: set[str], inner: bool) -> set[str]:
    """What the roots (qualified) and names (as `_reads` gives them) reach, roots included."""
    uses: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for tree in (old, new):
        for path in python_files(tree):
            imported = _imported(tree[path])
            for name, node in _functions(tree[path]):
                qualified = f"{path}:{name}"
                uses.setdefault(qualified, set()).update(_reads(node.body, imported, inner))
                known.setdefault(_key(qualified), set()).add(qualified)
    todo = {name for name in roots if name in uses}
    todo |= {name for key in names for name in known.get(key, ())}
    reached: set[str] = set()
    while todo:
        qualified = todo.pop()
        reached.add(qualified)
        todo |= {n for key in uses[qualified] for n in known.get(key, ())} - reached
    return reached


def _key(qualified: str) -> str:
    """How a function is asked for: a method as an attribute (`.decode`), others by name."""
    return f".{bare(qualified)}" if "." in qualified.rpartition(":")[2] else bare(qualified)


@lru_cache(maxsize=128)
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


@lru_cache(maxsize=128)
def _functions(source: str) -> tuple[tuple[str, Function], ...]:
    return tuple(walk_functions(_parse(source).body))


@lru_cache(maxsize=128)
def _imported(source: str) -> frozenset[str]:
    """Names that imports anywhere in a module bind; an attribute of one may be a function."""
    return frozenset(
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(_parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


@lru_cache(maxsize=128)
def _uses(source: str) -> frozenset[str]:
    """What running a module reads."""
    return frozenset(_reads(_top_level(_parse(source).body), _imported(source), inner=True))


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


def _reads(nodes: Iterable[ast.AST], imported: frozenset[str], inner: bool) -> set[str]:
    """Names that are read, and attributes with a dot before them.

    `inner`: those in functions made there as well. A preparation step makes functions that only run
    later, so while an engine is built they don't count.
    """
    names: set[str] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if not inner and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(f".{node.attr}")
            if isinstance(node.value, ast.Name) and node.value.id in imported:
                names.add(node.attr)
        todo.extend(ast.iter_child_nodes(node))
    return names
