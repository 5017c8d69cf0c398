"""Making functions raise, so that a request shows whether it needs them."""

from __future__ import annotations

import builtins
import gc
import sys
from collections.abc import Iterable
from types import CodeType, FunctionType

from .swap import resolve
from .tree import Tree, module_name


class Engaged(BaseException):
    """A changed function was called. No engine catches it with `except Exception`."""


def arm(tree: Tree, names: Iterable[str], block_imports: bool = False) -> list[str]:
    """Make every named function (`slim/model.py:Model.decode`) that can be reached raise Engaged.

    Returns the names that were reached. A module that isn't imported yet isn't, unless
    `block_imports`: then importing it fails from now on, which shows as well whether it is needed.
    """
    builtins.__dict__["__engaged__"] = Engaged
    armed: list[str] = []
    hidden: dict[tuple[str, str], str] = {}
    for name in names:
        path, _, qualname = name.partition(":")
        module = sys.modules.get(module_name(path))
        if module is None:
            if block_imports:
                sys.modules[module_name(path)] = None  # type: ignore[assignment]  # its documented use
                armed.append(name)
            continue
        function = resolve(module, qualname, tree.filename(path))
        if function is None:
            hidden[tree.filename(path), qualname] = name
        else:
            function.__code__ = _raiser(function, name)
            armed.append(name)
    return armed + _arm_hidden(hidden) if hidden else armed


def loaded(names: Iterable[str]) -> bool:
    """Whether the module of any of these functions is imported."""
    return any(module_name(name.partition(":")[0]) in sys.modules for name in names)


def _arm_hidden(hidden: dict[tuple[str, str], str]) -> list[str]:
    """Functions that no name leads to, such as wrapped ones: found among all living objects."""
    armed: list[str] = []
    gc.unfreeze()
    for found in gc.get_objects():
        if isinstance(found, FunctionType):
            place = (found.__code__.co_filename, found.__code__.co_qualname)
            name = hidden.get(place)
            if name is not None:
                found.__code__ = _raiser(found, name)
                armed.append(name)
    return armed


def _raiser(function: FunctionType, name: str) -> CodeType:
    """Code that raises, with the free names that the function's own code has."""
    free = function.__code__.co_freevars
    lines = ["def outer():", *(f"  {v} = None" for v in free), "  def raiser(*_, **__):"]
    lines += [f"    raise __engaged__({name!r})", *(f"    {v}" for v in free), "  return raiser"]
    namespace: dict[str, FunctionType] = {}
    exec("\n".join(lines), {"__engaged__": Engaged}, namespace)
    made: FunctionType = namespace["outer"]()
    return made.__code__
