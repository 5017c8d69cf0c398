"""Children are restarted, and end with their parent, however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.supervisor import Child, Supervisor

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# A room with a child of its own that asks, like every level has to, to end with its parent.
FAMILY = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "from services.processes import die_with_parent\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
    "                         preexec_fn=die_with_parent())\n"
    "open(sys.argv[1], 'w').write(str(child.pid))\n"
    "time.sleep(600)\n",
]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def started(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv)


def written(file: Path) -> int | None:
    text = file.read_text() if file.exists() else ""
    return int(text) if text else None


@pytest.fixture
async def supervisor():
    made = Supervisor()
    yield made
    await made.stop()


async def test_a_child_that_is_killed_is_started_again(supervisor, eventually):
    first = await supervisor.start(Child("sleeper", SLEEPER))
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: supervisor.pid("sleeper") not in (None, first))
    (ended,) = supervisor.exits
    assert (ended.name, ended.code, ended.restarted) == ("sleeper", -signal.SIGKILL, True)


async def test_a_child_that_runs_once_is_reported_with_its_code(supervisor):
    await supervisor.start(
        Child("once", [sys.executable, "-c", "raise SystemExit(3)"], restarts=False)
    )
    async with asyncio.timeout(20):
        ended = await supervisor.exit_of("once")
    assert (ended.code, ended.restarted) == (3, False)
    assert supervisor.pid("once") is None


async def test_a_child_that_always_fails_is_not_restarted_for_ever(supervisor, eventually):
    failing = Child("failing", [sys.executable, "-c", "raise SystemExit(1)"], max_restarts=2)
    await supervisor.start(failing)
    await eventually(lambda: len(supervisor.exits) == 3)
    assert [ended.restarted for ended in supervisor.exits] == [True, True, False]


async def test_stopping_ends_a_childs_whole_group(supervisor, tmp_path, eventually):
    parent = await supervisor.start(Child("family", [*FAMILY, str(tmp_path / "pid")]))
    await eventually(lambda: written(tmp_path / "pid"))
    grandchild = written(tmp_path / "pid")
    assert alive(grandchild)
    await supervisor.stop()
    await eventually(lambda: not alive(parent) and not alive(grandchild))


async def test_a_child_that_ignores_the_request_to_end_is_killed(supervisor, tmp_path, eventually):
    stubborn = [
        sys.executable,
        "-c",
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path(sys.argv[1]).write_text('1')\n"
        "time.sleep(600)\n",
        str(tmp_path / "ready"),
    ]
    pid = await supervisor.start(Child("stubborn", stubborn))
    await eventually(lambda: written(tmp_path / "ready"))
    await supervisor.stop(limit_s=0.2)
    await eventually(lambda: not alive(pid))


async def test_no_child_outlives_a_supervisor_that_is_killed(tmp_path, eventually):
    script = (
        "import asyncio, sys\n"
        "from services.supervisor import Child, Supervisor\n"
        "async def main():\n"
        "    await Supervisor().start(Child('family', sys.argv[1:]))\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with started([sys.executable, "-c", script, *FAMILY, str(tmp_path / "pid")]) as parent:
        await eventually(lambda: written(tmp_path / "pid"))
        grandchild = written(tmp_path / "pid")
        child = parent_of(grandchild)
        assert alive(child)
        parent.kill()
    await eventually(lambda: not alive(child) and not alive(grandchild))


async def test_a_child_gets_its_environment_priority_and_log(supervisor, tmp_path):
    told = Child(
        "told",
        [sys.executable, "-c", "import os; print(os.environ['DISH'], os.nice(0))"],
        nice=5,
        env={"DISH": "soup"},
        restarts=False,
        log_file=tmp_path / "logs" / "told.log",
    )
    await supervisor.start(told)
    async with asyncio.timeout(20):
        await supervisor.exit_of("told")
    assert (tmp_path / "logs" / "told.log").read_text() == f"soup {os.nice(0) + 5}\n"
