"""Lays this folder's files over an installed vLLM: put the folder on PYTHONPATH, nothing else.

Every package on the way to a changed file has a shim here. It runs the installed package's own
code, with the folder of the shim before the installed one on the package's path.
"""

import importlib.util
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

WANTED = ""  # the version of vLLM that the changed files were made for


def lay_over(package: dict[str, Any]) -> None:
    """Make the shim whose globals these are the installed package. Raises ImportError."""
    name, here = package["__name__"], os.path.dirname(os.path.abspath(package["__file__"]))
    spec = _installed(name, here)
    folders = list(spec.submodule_search_locations or ())
    if name == "vllm":
        _check(folders[0])
    package["__path__"] = package["__spec__"].submodule_search_locations = [here, *folders]
    origin = str(spec.origin)
    changed = os.path.join(here, "changed_init.py")
    package["__file__"] = origin
    if os.path.exists(changed):
        spec = importlib.util.spec_from_file_location(name, changed) or spec
    exec(spec.loader.get_code(name), package)  # type: ignore[union-attr]


def _installed(name: str, here: str) -> ModuleSpec:
    parent, _, last = name.rpartition(".")
    folders = list(sys.modules[parent].__path__) if parent else sys.path
    others = [f for f in folders if os.path.abspath(os.path.join(f, last)) != here]
    spec = PathFinder.find_spec(name, others)
    if spec is None or spec.loader is None:
        raise ImportError(f"this overlay is for vLLM {WANTED}, and there is no {name} below it")
    return spec


def _check(folder: str) -> None:
    try:
        with open(os.path.join(folder, "_version.py"), encoding="utf-8") as file:
            said = re.search(r"^(?:__version__ = )?version = ['\"]([^'\"]+)", file.read(), re.M)
    except OSError:
        said = None
    found = said.group(1) if said else "of no known version"
    if found.partition("+")[0] != WANTED.partition("+")[0]:
        raise ImportError(f"this overlay is for vLLM {WANTED}; {folder} is {found}")
