"""C libraries put together from the fragments in csrc/, and steps that prepare an engine."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from proposer.playbook.edit import AnchorGoneError
from proposer.playbook.rewrite import Change, Settings, Sources
from protos.candidate import Build

_FRAGMENTS = Path(__file__).with_name("csrc")
_TEMPLATES = Path(__file__).with_name("slim")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-lm")


def library(name: str, *fragments: str, defines: str = "") -> tuple[dict[str, str], Build]:
    """One C file of the tree made of fragments in order, and the recipe that builds it."""
    path = f"slim/csrc/{name}.c"
    text = defines + "\n".join(_fragment(fragment) for fragment in fragments)
    return {path: text}, Build(name=name, sources=(path,), flags=FLAGS)


def prepare_step(sources: Sources, name: str, text: str) -> dict[str, str]:
    """A preparation step that runs after those that the tree has already.

    Raises AnchorGoneError if the tree has a step of that name.
    """
    steps = [path for path in sources if _is_step(path)]
    if any(path.endswith(f"_{name}.py") for path in steps):
        raise AnchorGoneError(f"the tree prepares {name} already")
    return {f"slim/prepare/s{len(steps):02d}_{name}.py": text}


def template(name: str, settings: Settings) -> str:
    """The text of slim/<name>.txt with every `$setting` filled in as a Python literal."""
    filled = {key: repr(value) for key, value in settings.items()}
    return Template(_read(_TEMPLATES / f"{name}.txt")).substitute(filled)


def merged(*changes: Change) -> Change:
    """Changes of different files as one."""
    files: dict[str, str] = {}
    builds: list[Build] = []
    for change in changes:
        files.update(change.files)
        builds += change.builds
    return Change(files, tuple(builds))


def _is_step(path: str) -> bool:
    return path.startswith("slim/prepare/") and not path.endswith("/__init__.py")


def _fragment(name: str) -> str:
    return _read(_FRAGMENTS / f"{name}.c")


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
