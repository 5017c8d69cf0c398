"""Puts the changed files into an installed vLLM, and takes them out again.

    python apply.py check      what would happen
    python apply.py apply
    python apply.py undo

`--tree FOLDER` names the folder that holds `vllm/` (default: where this Python finds it). A file
is only replaced if it is exactly what the change was made for.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class NotDone(Exception):
    """Nothing was changed; one line that says why."""


def main() -> int:
    """0 done, 1 nothing was changed and why."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["check", "apply", "undo"])
    parser.add_argument("--tree", type=Path, help="the folder that holds vllm/")
    options = parser.parse_args()
    facts = json.loads((HERE / "export.json").read_text(encoding="utf-8"))
    try:
        tree = options.tree or _found()
        _check_version(tree, facts)
        print(_carry_out(options.what, tree, facts))
    except NotDone as error:
        print(f"apply.py: {error}", file=sys.stderr)
        return 1
    return 0


def _found() -> Path:
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.origin:
        raise NotDone(f"{sys.executable} finds no vllm: run its own Python, or give --tree FOLDER")
    folder = Path(spec.origin).parent.parent
    if (folder / "vllm_overlay.py").exists():
        raise NotDone("the overlay is on PYTHONPATH: take it off, or give --tree FOLDER")
    return folder


def _check_version(tree: Path, facts: dict[str, Any]) -> None:
    wanted = facts["version"]
    try:
        text = (tree / "vllm" / "_version.py").read_text(encoding="utf-8")
    except OSError:
        raise NotDone(f"{tree} holds no vLLM; this change is for vLLM {wanted}") from None
    said = re.search(r"^(?:__version__ = )?version = ['\"]([^'\"]+)", text, re.M)
    found = said.group(1) if said else "of no known version"
    if found.partition("+")[0] != wanted.partition("+")[0]:
        raise NotDone(f"this change is for vLLM {wanted}; {tree} holds {found}")


def _carry_out(what: str, tree: Path, facts: dict[str, Any]) -> str:
    states = {entry["path"]: _state(tree, entry) for entry in facts["files"]}
    odd = [path for path, state in states.items() if state == "other"]
    if odd:
        raise NotDone(
            f"{odd[0]} in {tree} is neither vLLM {facts['version']}'s nor the changed one: "
            "somebody else changed it; use the patches"
        )
    goal = {"check": "", "apply": "changed", "undo": "original"}[what]
    counts = {state: list(states.values()).count(state) for state in ("original", "changed")}
    if not goal:
        return f"{tree}: {counts['original']} files as installed, {counts['changed']} changed"
    for entry in facts["files"]:
        if states[entry["path"]] != goal:
            _put(tree / entry["path"], entry[goal])
    return f"{tree}: {len(states) - counts[goal]} files now {goal}, {counts[goal]} were already"


def _state(tree: Path, entry: dict[str, Any]) -> str:
    path = tree / entry["path"]
    found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    for state in ("original", "changed"):
        if found == entry[f"{state}_sha256"]:
            return state
    return "other"


def _put(path: Path, kept: str | None) -> None:
    """Replace a file whole, or remove it where there was none."""
    if kept is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    making = path.with_name(f".{path.name}.making")
    making.write_bytes((HERE / kept).read_bytes())
    os.replace(making, path)


if __name__ == "__main__":
    sys.exit(main())
