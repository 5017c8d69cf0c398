"""Which functions of a tree ran during some work, at no cost to that work where that can be had.

A profiler sees every call of everything; importing an engine of thousands of modules under one
takes minutes. CPython 3.11 counts the first runs of each function by itself, and newer ones can be
asked about single functions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from .runner import record_calls
from .tree import Tree

_WARM_UP_OFFSET = 52  # of `short co_warmup` in CPython 3.11's PyCodeObject, checked before use
Ran = frozenset[tuple[str, str]]


def record_runs(tree: Tree, work: Callable[[], None]) -> Ran:
    """Do `work`; (file name, qualified name) of every function of the tree that ran meanwhile.

    Functions that ran before may be left out. The tree's sources must not change meanwhile.
    """
    if hasattr(sys, "monitoring"):
        return _record_monitored(tree, work)
    if not _counts_runs():
        return record_calls(tree.root, work)
    codes = list(_all_codes(tree))
    before = [_runs(code) for code in codes]
    work()
    pairs = zip(codes, before, strict=True)
    return frozenset(
        (code.co_filename, code.co_qualname) for code, runs in pairs if _runs(code) != runs
    )


def _all_codes(tree: Tree) -> Iterable[CodeType]:
    for path in tree.sources:
        yield from _inside(tree.code(path))


def _inside(code: CodeType) -> Iterable[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def _runs(code: CodeType) -> int:
    return ctypes.c_short.from_address(id(code) + _WARM_UP_OFFSET).value


def _counts_runs() -> bool:
    """Whether this interpreter counts runs where they are looked for."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        return False
    made: dict[str, Any] = {}
    exec(compile("def probe(): pass", "<probe>", "exec"), made)
    code = made["probe"].__code__
    seen = [_runs(code)]
    for _ in range(2):
        made["probe"]()
        seen.append(_runs(code))
    return seen[1] == seen[0] + 1 and seen[2] == seen[0] + 2


def _record_monitored(tree: Tree, work: Callable[[], None]) -> Ran:
    """With `sys.monitoring` (3.12): each function is reported once."""
    monitoring: Any = vars(sys)["monitoring"]
    tool, starts = monitoring.PROFILER_ID, monitoring.events.PY_START
    seen: set[tuple[str, str]] = set()

    def started(code: CodeType, _: int) -> Any:
        seen.add((code.co_filename, code.co_qualname))
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "perpetune")
    monitoring.register_callback(tool, starts, started)
    for code in _all_codes(tree):
        monitoring.set_local_events(tool, code, starts)
    try:
        work()
    finally:
        monitoring.free_tool_id(tool)
    return frozenset(seen)
