"""What differs between two versions of a module, by its syntax tree. Pure.

A running engine can take a change in place only if it touches function bodies, or adds functions,
classes and imports. Whatever runs when the module is imported, or fixed how a function is called,
would need the module to run again: each such difference is named.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

# Decorators whose function is still at hand in the class, so that its code can be exchanged.
TRANSPARENT = frozenset({"staticmethod", "classmethod", "property"})
# They run when an engine is built; a running one has already been through them.
CONSTRUCTION = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"}
)


@dataclass
class ModuleDiff:
    """`changed` and `added` are qualified names in the module (`Model.decode`); `bound` counts new
    imports and constants; `rerun` says, a line each, why the module would have to run again."""

    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    bound: int = 0
    rerun: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.changed or self.added or self.bound or self.rerun)


def diff_modules(path: str, old: str, new: str) -> ModuleDiff:
    """Compare two versions. Both must compile (SyntaxError otherwise)."""
    diff = ModuleDiff()
    before, after = ast.parse(old, path), ast.parse(new, path)
    freevars = (_freevars(compile(old, path, "exec")), _freevars(compile(new, path, "exec")))
    _Comparison(path, diff, freevars).module(before, after)
    return diff


def functions_of(source: str, path: str) -> list[str]:
    """Qualified names of every function and method of a module (not those inside functions)."""
    return [name for name, _ in walk_functions(ast.parse(source, path).body)]


def walk_functions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from walk_functions(node.body, f"{prefix}{node.name}.")


class _Comparison:
    def __init__(
        self, path: str, diff: ModuleDiff, freevars: tuple[dict[str, tuple[str, ...]], ...]
    ) -> None:
        self._path = path
        self._diff = diff
        self._free_before, self._free_after = freevars

    def module(self, old: ast.Module, new: ast.Module) -> None:
        self._imports(old, new)
        self._scope(
            [node for node in old.body if not _is_import(node)],
            [node for node in new.body if not _is_import(node)],
            "",
            taken=_bound_names(old.body),
        )

    def _imports(self, old: ast.Module, new: ast.Module) -> None:
        before, after = _imported(old), _imported(new)
        for item in set(before) - set(after):
            # The name stays bound in a running module: harmless only if nothing asks for it.
            if item[-1] in _asked_names(new) or item[0] == "__future__":
                self._rerun(f"the import of {item[-1]} was removed")
        taken = _bound_names(old.body)
        for item in after:
            if item in before:
                continue
            name = item[-1]
            self._diff.bound += 1
            if item[0] == "__future__" or name == "*":
                self._rerun(f"the import of {item[0]} {name} can't be added in place")
            elif name in taken:
                self._rerun(f"an import binds {name} anew")

    def _scope(
        self, old: list[ast.stmt], new: list[ast.stmt], prefix: str, taken: set[str]
    ) -> None:
        before, rest_before = _split(old)
        after, rest_after = _split(new)
        where = f"class {prefix[:-1]}" if prefix else "module level"
        if not prefix:
            rest_after = self._without_new_names(rest_before, rest_after, taken)
        if _dumps(rest_before) != _dumps(rest_after):
            self._rerun(f"statements at {where} changed")
        if _twice(old) | _twice(new):
            if _dumps(old) != _dumps(new):
                self._rerun(f"a name is defined twice at {where}")
            return
        for name in before.keys() - after.keys():
            self._rerun(f"{prefix}{name} was removed")
        for name, node in after.items():
            if name in before:
                self._both(before[name], node, prefix)
            else:
                self._new(node, prefix, taken)

    def _without_new_names(
        self, old: list[ast.stmt], new: list[ast.stmt], taken: set[str]
    ) -> list[ast.stmt]:
        """The new statements but for assignments that only bind names nobody had."""
        before = set(_dumps(old))

        def is_new_name(node: ast.stmt) -> bool:
            if isinstance(node, ast.Assign):
                plain = all(isinstance(target, ast.Name) for target in node.targets)
            else:
                plain = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            return plain and _dump(node) not in before and not _bound_names([node]) & taken

        kept = [node for node in new if not is_new_name(node)]
        self._diff.bound += len(new) - len(kept)
        return kept

    def _both(self, old: Definition, new: Definition, prefix: str) -> None:
        if _dump(old) == _dump(new):
            return
        name = prefix + new.name
        if type(old) is not type(new):
            self._rerun(f"{name} became something else")
        elif isinstance(new, ast.ClassDef) and isinstance(old, ast.ClassDef):
            if _class_head(old) != _class_head(new):
                self._rerun(f"bases or decorators of class {name} changed")
            self._scope(old.body, new.body, f"{name}.", _bound_names(old.body))
        elif isinstance(new, Function) and isinstance(old, Function):
            self._diff.changed.append(name)
            self._function(name, old, new)

    def _function(self, name: str, old: Function, new: Function) -> None:
        if _dumps(old.decorator_list) != _dumps(new.decorator_list):
            self._rerun(f"decorators of {name} changed")
        elif not _transparent(new):
            self._rerun(f"{name} is wrapped by a decorator")
        if not _simple_defaults(old, new):
            self._rerun(f"the defaults of {name} changed")
        if self._free_before.get(name) != self._free_after.get(name):
            self._rerun(f"{name} closes over other variables")

    def _new(self, node: Definition, prefix: str, taken: set[str]) -> None:
        name = prefix + node.name
        if node.name in taken:
            self._rerun(f"{name} takes a name that something else has")
        if isinstance(node, ast.ClassDef):
            self._diff.added.extend(n for n, _ in walk_functions(node.body, f"{name}."))
            if prefix:
                self._rerun(f"class {name} was added inside a class")
            return
        self._diff.added.append(name)
        if set(self._free_after.get(name, ())) - {"__class__"}:
            self._rerun(f"{name} closes over {', '.join(self._free_after[name])}")
        if prefix and node.name.startswith("__") and node.name.endswith("__"):
            self._rerun(f"{name} was added: existing objects may not see it")

    def _rerun(self, reason: str) -> None:
        self._diff.rerun.append(f"{self._path}: {reason}")


def _split(body: list[ast.stmt]) -> tuple[dict[str, Definition], list[ast.stmt]]:
    """Definitions by name, and the other statements without docstrings and `pass`."""
    definitions: dict[str, Definition] = {}
    rest: list[ast.stmt] = []
    for node in _without_docstring(body):
        if isinstance(node, Definition):
            definitions[node.name] = node
        elif not isinstance(node, ast.Pass):
            rest.append(node)
    return definitions, rest


def _twice(body: list[ast.stmt]) -> set[str]:
    names = [node.name for node in body if isinstance(node, Definition)]
    return {name for name in names if names.count(name) > 1}


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    head = body[0] if body else None
    if isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant):
        return body[1:] if isinstance(head.value.value, str) else body
    return body


class _NoDocstrings(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._strip(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._strip(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._strip(node)

    def _strip(self, node: Definition) -> ast.AST:
        node.body = _without_docstring(node.body) or [ast.Pass()]
        return self.generic_visit(node)


def _dump(node: ast.AST) -> str:
    """The tree as text, without places and docstrings. Strips `node` itself, which is ours."""
    return ast.dump(_NoDocstrings().visit(node))


def _dumps(nodes: Iterable[ast.AST | None]) -> list[str]:
    return ["" if node is None else _dump(node) for node in nodes]


def _class_head(node: ast.ClassDef) -> list[str]:
    return _dumps([*node.bases, *node.keywords, *node.decorator_list])


def _transparent(node: Function) -> bool:
    return all(isinstance(d, ast.Name) and d.id in TRANSPARENT for d in node.decorator_list)


def _simple_defaults(old: Function, new: Function) -> bool:
    """Whether the defaults are the same, or at most new constants."""
    before = _dumps([*old.args.defaults, *old.args.kw_defaults])
    after = [node for node in (*new.args.defaults, *new.args.kw_defaults) if node is not None]
    return all(isinstance(node, ast.Constant) or _dump(node) in before for node in after)


def _asked_names(module: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _imported(module: ast.Module) -> list[tuple[str, str, int, str]]:
    """(module, name, level, bound name) of each import at module level."""
    found = []
    for node in module.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                found.append((alias.name, "", 0, bound))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                bound = alias.asname or alias.name
                found.append((node.module or "", alias.name, node.level, bound))
    return found


def _bound_names(body: Iterable[ast.stmt]) -> set[str]:
    """Names that statements bind in their own scope; too many rather than too few."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, Definition):
            names.add(node.name)
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                names.add(inner.id)
            elif isinstance(inner, ast.alias):
                names.add(inner.asname or inner.name.partition(".")[0])
            elif isinstance(inner, Definition):
                names.add(inner.name)
    return names


def _freevars(code: CodeType, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Free variables of every function outside functions, by qualified name."""
    found: dict[str, tuple[str, ...]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and "<" not in constant.co_qualname:
            found[constant.co_qualname] = constant.co_freevars
            found.update(_freevars(constant))
    return found
