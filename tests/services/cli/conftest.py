"""Runs the real `perpetune` command in an empty folder, over rooms that play a recording."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STAND_INS = ROOT / "tests" / "support" / "stand_in_rooms"
SUPPORT = ROOT / "tests" / "support"


@dataclass
class Door:
    """The command line, in a folder of its own."""

    cwd: Path
    env: dict[str, str]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*words),
            cwd=self.cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "services.cli.main", *words]

    def interrupted(self, after: str, *words: str) -> tuple[int, str]:
        """Run, send Ctrl-C once a line holds `after`; the exit code and all that was printed."""
        with self.started(*words) as process:
            said, sent = "", False
            for line in process.stdout or ():
                said += line
                if after in line and not sent:
                    process.send_signal(signal.SIGINT)
                    sent = True
            return process.wait(timeout=60), said

    def started(self, *words: str) -> subprocess.Popen[str]:
        """The command, running, its output in a pipe."""
        return subprocess.Popen(
            self.argv(*words), cwd=self.cwd, env=self.env, stdout=subprocess.PIPE, text=True
        )

    def campaign(self) -> str:
        """The name of the newest run."""
        return sorted(path.name for path in (self.cwd / "runs").iterdir())[-1]


@pytest.fixture
def make_door(tmp_path: Path) -> Callable[[list[Path]], Door]:
    def make(first: list[Path]) -> Door:
        path = os.pathsep.join(str(part) for part in [*first, SUPPORT, ROOT])
        env = {name: value for name, value in os.environ.items() if "PERPETUNE" not in name}
        env |= {"PYTHONPATH": path, "PERPETUNE_HOME": str(tmp_path / "home")}
        return Door(tmp_path, env)

    return make


@pytest.fixture
def door(make_door: Callable[[list[Path]], Door]) -> Door:
    """The command over stand-in rooms."""
    return make_door([STAND_INS])


@pytest.fixture
def real_door(make_door: Callable[[list[Path]], Door]) -> Door:
    """The command over the real rooms."""
    return make_door([])
