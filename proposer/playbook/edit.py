"""Edits of Python source, anchored in its syntax tree and not in its lines.

Each edit names a function and what it expects there, so that it lands on a tree that earlier
winners have changed, and raises AnchorGoneError where what it builds on is no longer there.
"""

from __future__ import annotations

import ast
import textwrap


class AnchorGoneError(ValueError):
    """The source no longer holds what an edit is anchored to."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


def guard(source: str, function: str, code: str) -> str:
    """Put statements at the start of a function's body, after its docstring.

    Guards stack: the newest runs first and leaves the rest as it was.
    """
    node = _function(source, function)
    first = node.body[1] if _has_docstring(node) and len(node.body) > 1 else node.body[0]
    lines = source.splitlines(keepends=True)
    at = first.lineno - 1
    return "".join([*lines[:at], _indented(code, first.col_offset), *lines[at:]])


def rebody(source: str, function: str, code: str) -> str:
    """Replace a function's whole body, but for its docstring."""
    node = _function(source, function)
    kept = node.body[1:] if _has_docstring(node) and len(node.body) > 1 else node.body
    return _replaced(source, kept, code)


def swap(source: str, function: str, old: str, new: str) -> str:
    """Replace the statements `old`, which the function holds exactly once, by `new`."""
    return _replaced(source, _statements(source, function, old), new)


def require(source: str, function: str, statements: str = "") -> None:
    """Raise AnchorGoneError unless the function exists and holds the statements exactly once."""
    if statements:
        _statements(source, function, statements)
    else:
        _function(source, function)


def holds(source: str, function: str, statements: str) -> bool:
    """Whether the function holds the statements exactly once."""
    try:
        require(source, function, statements)
    except AnchorGoneError:
        return False
    return True


def _function(source: str, qualified: str) -> Function:
    body: list[ast.stmt] = ast.parse(source).body
    *scope, name = qualified.split(".")
    for part in scope:
        classes = [n for n in body if isinstance(n, ast.ClassDef) and n.name == part]
        if len(classes) != 1:
            raise AnchorGoneError(f"there is no class {part} any more")
        body = classes[0].body
    functions = [n for n in body if isinstance(n, Function) and n.name == name]
    if len(functions) != 1:
        raise AnchorGoneError(f"there is no function {qualified} any more")
    return functions[0]


def _has_docstring(node: Function) -> bool:
    first = node.body[0]
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _statements(source: str, function: str, old: str) -> list[ast.stmt]:
    wanted = [ast.dump(node) for node in ast.parse(textwrap.dedent(old)).body]
    found = []
    for block in _blocks(_function(source, function)):
        dumps = [ast.dump(node) for node in block]
        for at in range(len(dumps) - len(wanted) + 1):
            if dumps[at : at + len(wanted)] == wanted:
                found.append(block[at : at + len(wanted)])
    if len(found) != 1:
        first = textwrap.dedent(old).strip().splitlines()[0]
        raise AnchorGoneError(f"{function} has {first!r} {len(found)} times, not once")
    return found[0]


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """Every list of statements inside a node, at any depth."""
    blocks = []
    for inner in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(inner, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                blocks.append(block)
    return blocks


def _replaced(source: str, nodes: list[ast.stmt], code: str) -> str:
    lines = source.splitlines(keepends=True)
    last = nodes[-1].end_lineno or nodes[-1].lineno
    new = _indented(code, nodes[0].col_offset)
    return "".join([*lines[: nodes[0].lineno - 1], new, *lines[last:]])


def _indented(code: str, columns: int) -> str:
    text = textwrap.dedent(code).strip("\n") + "\n"
    return textwrap.indent(text, " " * columns)
