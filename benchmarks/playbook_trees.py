"""Trees and libraries of the playbook's rewrites, laid out for benchmarks/playbook_child.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from proposer.playbook import Change
from protos.candidate import Build

SLIM = Path(__file__).parents[1] / "engine_host" / "engines" / "slim"


def start_sources() -> dict[str, str]:
    """The start tree of the slim engine: path to text."""
    return {
        f"slim/{path.relative_to(SLIM)}": path.read_text(encoding="utf-8")
        for path in sorted(SLIM.rglob("*.py"))
    }


def lay_out(sources: Mapping[str, str], change: Change, folder: Path) -> dict[str, str]:
    """Write the changed tree to a folder and build its libraries: name to path."""
    for path, text in {**sources, **change.files}.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return {build.name: str(_built(build, folder)) for build in change.builds}


def _built(build: Build, folder: Path) -> Path:
    library = folder / f"lib{build.name}.so"
    sources = [str(folder / source) for source in build.sources]
    options = [flag for flag in build.flags if not flag.startswith("-l")]
    links = [flag for flag in build.flags if flag.startswith("-l")]
    command = ["gcc", *options, "-Wall", "-Wno-unused-function", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, *sources, "-o", str(library), *links], check=True)
    return library


class Child:
    """The process of playbook_child.py, with libiomp5 preloaded where it is installed."""

    def __init__(self, weights: Path) -> None:
        runtime = Path(sys.executable).parents[1] / "lib" / "libiomp5.so"
        preload = {"LD_PRELOAD": str(runtime)} if runtime.exists() else {}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("playbook_child.py")), str(weights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **preload},
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do one job. Raises RuntimeError if the process is gone."""
        assert self._process.stdin is not None  # for mypy: both are pipes
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the engine process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        self._process.wait()
