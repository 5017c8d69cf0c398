"""What changed between two versions of a source file, as far as a running module can follow."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = tuple[str, ...]
_LINE_END = re.compile(r"\r\n|\r|\n")  # as Python counts lines
Lines = tuple[Sequence[str], Sequence[str]]  # of both sources


class NotHot(Exception):
    """The change can't be made inside a running engine; the message says why."""


@dataclass(frozen=True)
class Changed:
    """A function whose body, signature or defaults differ; `scope` holds its classes' names."""

    scope: Scope
    old: Function
    new: Function

    @property
    def qualname(self) -> str:
        return ".".join((*self.scope, self.new.name))

    @property
    def defaults_differ(self) -> bool:
        def dumped(node: Function) -> list[str]:
            found = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
            return [ast.dump(d) for d in found]

        return dumped(self.old) != dumped(self.new) or _keyword_names(self.old) != _keyword_names(
            self.new
        )


def _keyword_names(node: Function) -> list[str]:
    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return [arg.arg for arg, default in pairs if default is not None]


@dataclass
class FileDiff:
    """`added` maps a scope to its new statements, in source order."""

    changed: list[Changed] = field(default_factory=list)
    added: dict[Scope, list[ast.stmt]] = field(default_factory=dict)

    @property
    def functions(self) -> list[str]:
        """Qualified names of every changed or added function."""
        names = [c.qualname for c in self.changed]
        for scope, statements in self.added.items():
            for statement in statements:
                names += _function_names(statement, scope)
        return names


def _function_names(statement: ast.stmt, scope: Scope) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return [".".join((*scope, statement.name))]
    if isinstance(statement, ast.ClassDef):
        inside = (*scope, statement.name)
        return [name for child in statement.body for name in _function_names(child, inside)]
    return []


def diff(old: str, new: str) -> FileDiff:
    """Compare two sources. Raises NotHot, or SyntaxError from either source."""
    result = FileDiff()
    if old != new:
        lines = _LINE_END.split(old), _LINE_END.split(new)
        _diff_scope(ast.parse(old).body, ast.parse(new).body, (), result, lines)
    return result


def _diff_scope(
    old: Sequence[ast.stmt],
    new: Sequence[ast.stmt],
    scope: Scope,
    result: FileDiff,
    lines: Lines,
) -> None:
    before, after = _Body(old), _Body(new)
    for name in before.definitions:
        if name not in after.definitions:
            raise NotHot(f"removes {'.'.join((*scope, name))}")
    left = list(before.others)
    for statement in new:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _diff_definition(before, after, statement, scope, result, lines)
            continue
        for piece in _pieces(statement):
            dumped = ast.dump(piece)
            if dumped in left:
                left.remove(dumped)
            elif not _is_docstring(piece):
                _require_addition(piece, before.names)
                result.added.setdefault(scope, []).append(piece)
    for dumped in left:
        if not dumped.startswith(("Import(", "ImportFrom(", "Expr(value=Constant")):
            raise NotHot("changes code that runs when the module is imported")


class _Body:
    def __init__(self, statements: Sequence[ast.stmt]) -> None:
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.others: list[str] = []
        self.names: set[str] = set()
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.definitions.setdefault(statement.name, []).append(statement)
                self.names.add(statement.name)
            else:
                for piece in _pieces(statement):
                    self.others.append(ast.dump(piece))
                    self.names |= _bound(piece)


def _diff_definition(
    before: _Body, after: _Body, new: ast.stmt, scope: Scope, result: FileDiff, lines: Lines
) -> None:
    assert isinstance(new, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    olds = before.definitions.get(new.name)
    if olds is None:
        if new.name in before.names:
            raise NotHot(f"rebinds {new.name}")
        result.added.setdefault(scope, []).append(new)
        return
    if any(_same(old, new, lines) for old in olds):
        return
    if len(olds) > 1 or len(after.definitions[new.name]) > 1:
        raise NotHot(f"changes {new.name}, which is defined more than once")
    (old,) = olds
    if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
        if _class_header(old) != _class_header(new):
            raise NotHot(f"changes the bases or decorators of class {new.name}")
        _diff_scope(old.body, new.body, (*scope, new.name), result, lines)
        return
    if isinstance(old, ast.ClassDef) or isinstance(new, ast.ClassDef):
        raise NotHot(f"turns {new.name} into another kind of definition")
    assert isinstance(old, ast.FunctionDef | ast.AsyncFunctionDef)
    if [ast.dump(d) for d in old.decorator_list] != [ast.dump(d) for d in new.decorator_list]:
        raise NotHot(f"changes the decorators of {new.name}")
    result.changed.append(Changed(scope, old, new))


def _same(old: ast.stmt, new: ast.stmt, lines: Lines) -> bool:
    """Whether two definitions say the same. Of the same lines that is known at once."""
    if _text(old, lines[0]) == _text(new, lines[1]):
        return True
    if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
        return False  # what differs inside is found there
    return ast.dump(old) == ast.dump(new)


def _text(node: ast.stmt, lines: Sequence[str]) -> Sequence[str]:
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return lines[first - 1 : node.end_lineno]


def _class_header(node: ast.ClassDef) -> list[str]:
    return [ast.dump(n) for n in (*node.decorator_list, *node.bases, *node.keywords)]


def _pieces(statement: ast.stmt) -> list[ast.stmt]:
    """An import of several names as one import a name; anything else as it is."""
    if isinstance(statement, ast.Import):
        return [ast.copy_location(ast.Import([alias]), statement) for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        return [
            ast.copy_location(ast.ImportFrom(statement.module, [alias], statement.level), statement)
            for alias in statement.names
        ]
    return [statement]


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _bound(statement: ast.stmt) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _require_addition(statement: ast.stmt, taken: set[str]) -> None:
    """A new statement may only bind new names: imports and plain assignments."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        raise NotHot("changes the module's __future__ imports")
    if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
        raise NotHot("adds a star import")
    if isinstance(statement, ast.Assign):
        simple = all(isinstance(target, ast.Name) for target in statement.targets)
    elif isinstance(statement, ast.AnnAssign):
        simple = isinstance(statement.target, ast.Name)
    else:
        simple = isinstance(statement, ast.Import | ast.ImportFrom)
    if not simple:
        raise NotHot(f"adds code that runs when the module is imported (line {statement.lineno})")
    again = _bound(statement) & taken
    if again:
        raise NotHot(f"rebinds {', '.join(sorted(again))} (line {statement.lineno})")
