"""An engine's tree inside a child: its sources by path, importable, with true tracebacks."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any


class Tree:
    """Sources of one engine package, laid over a folder that they need not exist in.

    `root` is the folder the tree is (or would be) laid out in; paths are relative to it
    (`slim/model.py`). Compiled code is remembered by source, so a fork compiles only what differs.
    """

    def __init__(self, root: str, sources: Mapping[str, str]) -> None:
        self.root = root
        self.sources = dict(sources)
        self._compiled: dict[tuple[str, str], CodeType] = {}

    @classmethod
    def read(cls, root: str) -> Tree:
        sources: dict[str, str] = {}
        for folder, _, names in os.walk(root):
            for name in names:
                if name.endswith(".py"):
                    full = os.path.join(folder, name)
                    with open(full, encoding="utf-8") as file:
                        sources[os.path.relpath(full, root)] = file.read()
        return cls(root, sources)

    def filename(self, path: str) -> str:
        return os.path.join(self.root, path)

    def overlay(self, files: Mapping[str, str | None]) -> None:
        """Replace, add (text) or delete (None) files. Modules already imported aren't touched."""
        for path, text in files.items():
            if text is None:
                self.sources.pop(path, None)
            else:
                self.sources[path] = text
            self._show(path)

    def _show(self, path: str) -> None:
        """Have tracebacks and compilers read this source, not the file that may lie there."""
        name, text = self.filename(path), self.sources.get(path)
        if text is None:
            linecache.cache.pop(name, None)
        else:
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)

    def code(self, path: str) -> CodeType:
        """The compiled source. Raises SyntaxError."""
        text = self.sources[path]
        known = self._compiled.get((path, text))
        if known is None:
            known = compile(text, self.filename(path), "exec", dont_inherit=True)
            self._compiled[path, text] = known
        return known

    def compile_all(self) -> None:
        for path in self.sources:
            self.code(path)

    def path_of(self, module: str) -> tuple[str, bool] | None:
        """The path of a dotted module name and whether it is a package; None: not of this tree."""
        base = module.replace(".", "/")
        if f"{base}/__init__.py" in self.sources:
            return f"{base}/__init__.py", True
        if f"{base}.py" in self.sources:
            return f"{base}.py", False
        return None

    def install(self) -> importlib.abc.MetaPathFinder:
        """Serve imports of the tree's packages from here, before any folder is looked at."""
        finder = _Finder(self)
        sys.meta_path.insert(0, finder)
        return finder


def module_name(path: str) -> str:
    """`slim/prepare/fuse.py` -> `slim.prepare.fuse`."""
    name = path.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def prepare_steps(engine: str, paths: Iterable[str]) -> list[str]:
    """The preparation modules among `paths`, in their order of running."""
    folder = f"{engine}/prepare/"
    return sorted(
        p
        for p in paths
        if p.startswith(folder) and p.endswith(".py") and p != f"{folder}__init__.py"
    )


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = self._tree.path_of(fullname)
        if found is None:
            return None
        where, package = found
        filename = self._tree.filename(where)
        spec = importlib.util.spec_from_file_location(
            fullname,
            filename,
            loader=_Loader(self._tree, where),
            submodule_search_locations=[os.path.dirname(filename)] if package else None,
        )
        return spec


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path

    def get_source(self, fullname: str) -> str:
        return self._tree.sources[self._path]

    def get_code(self, fullname: str) -> CodeType:
        return self._tree.code(self._path)

    def is_package(self, fullname: str) -> bool:
        return self._path.endswith("/__init__.py")

    def exec_module(self, module: ModuleType) -> None:
        exec(self._tree.code(self._path), module.__dict__)


def purge(engine: str) -> None:
    """Forget every imported module of the engine's package."""
    for name in [n for n in sys.modules if n == engine or n.startswith(engine + ".")]:
        del sys.modules[name]


def error_line(error: BaseException, tree: Tree | None = None) -> str:
    """One line for a person: kind, message, and the innermost place in the tree."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if tree is not None and name.startswith(tree.root + "/"):
            place = f" ({os.path.relpath(name, tree.root)}:{trace.tb_lineno})"
        trace = trace.tb_next
    text = str(error).strip().splitlines()
    message = f": {text[0][:400]}" if text else ""
    return f"{type(error).__name__}{message}{place}"


def frozen(value: Any) -> Any:
    """A JSON-friendly copy of plain data (tuples become lists)."""
    if isinstance(value, (list, tuple)):
        return [frozen(item) for item in value]
    if isinstance(value, dict):
        return {str(key): frozen(item) for key, item in value.items()}
    return value
