"""Two changes of one text as one, where they touch different functions. Pure."""

from __future__ import annotations

import ast
from difflib import SequenceMatcher


class Conflict(Exception):
    """Both change the same thing; the message names it."""


def merge_texts(base: str, one: str, other: str) -> str:
    """Both changes of a Python file. Raises Conflict where they touch the same function."""
    shared = _touched(base, one) & _touched(base, other)
    if shared:
        raise Conflict(sorted(shared)[0])
    lines = base.splitlines(keepends=True)
    edits = sorted([*_edits(lines, one), *_edits(lines, other)], key=lambda edit: edit[:2])
    merged: list[str] = []
    at = 0
    for begin, end, new in edits:
        if begin < at or (begin == at and merged and begin == end and not new):
            raise Conflict(f"line {begin + 1}")
        merged += lines[at:begin]
        merged += new
        at = end
    text = "".join([*merged, *lines[at:]])
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise Conflict(str(error)) from error
    return text


def _edits(base: list[str], new: str) -> list[tuple[int, int, list[str]]]:
    """Replaced ranges of base lines, and what stands there instead."""
    fresh = new.splitlines(keepends=True)
    codes = SequenceMatcher(None, base, fresh, autojunk=False).get_opcodes()
    return [(i, j, fresh[k:m]) for tag, i, j, k, m in codes if tag != "equal"]


def _touched(base: str, new: str) -> set[str]:
    """Functions whose text differs, added ones included; "" for the rest of the module."""
    before, after = _functions(base), _functions(new)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _functions(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    rest: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = ast.dump(node)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{node.name}.{inner.name}"] = ast.dump(inner)
                else:
                    rest.append(ast.dump(inner))
        else:
            rest.append(ast.dump(node))
    return found | {"": "\n".join(rest)}
