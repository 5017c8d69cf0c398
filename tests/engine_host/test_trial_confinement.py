"""What a trial can reach, one property a test, on every rung. Probes run inside real trials."""

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import engine_host
from engine_host import processes
from engine_host.errors import TrialFailedError
from engine_host.residency import Residency
from engine_host.strategies import ForkStrategy
from engine_host.trial_process import TrialProcess
from protos.trial import Limits, Side
from services.blobs import DirectoryBlobs

Probe = Callable[[str], str]
RUNGS = ("hot", "warm", "cold")
REPOSITORY = Path(engine_host.__file__).parent.parent


def with_step(residency: Residency, home: Path, body: str) -> Side:
    """The start release with a preparation step that runs `body`."""
    start, blobs = residency.start, DirectoryBlobs(home / "blobs")
    text = "def prepare(engine):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    path = "fake/prepare/probe.py"
    files = {**start.files, path: blobs.put(text.encode())}
    return Side(start.release, files, {}, {}, "c1", "hot", (path,))


def ask_trial(residency: Residency, home: Path, rung: str, body: str, limits: Limits) -> str:
    """Run `body` in a fresh trial; what it raised, in one line."""
    process = residency.bring(with_step(residency, home, body), rung, limits)
    try:
        process.ask("prepare", "prepare", limits.prepare_s)
    except TrialFailedError as error:
        return error.detail
    finally:
        assert process.end()
    return ""


@pytest.fixture(params=RUNGS)
def probe(request: pytest.FixtureRequest, residency: Residency, home: Path) -> Iterator[Probe]:
    """Runs code in a trial and returns what it says with `say(...)`; the rung is a parameter."""

    def run(body: str) -> str:
        head = "import os, sys, socket, ctypes\ndef say(it):\n    raise RuntimeError(it)\n"
        line = ask_trial(residency, home, request.param, head + textwrap.dedent(body), Limits())
        return line.removeprefix("RuntimeError: ").rpartition(" (fake/")[0]

    return run


def test_no_internet_socket_can_be_made(probe: Probe):
    assert "Permission denied" in probe("socket.socket(socket.AF_INET)") + probe(
        """
        try:
            socket.socket(socket.AF_INET)
        except OSError as error:
            say(error.strerror)
        """
    )


def test_the_network_has_no_interface_but_its_own_loopback(probe: Probe):
    assert probe("say([name for _, name in socket.if_nameindex()])") in ("['lo']", "[]") or (
        "denied" in probe("say(socket.if_nameindex())").lower()
    )


def test_a_socket_of_the_host_is_out_of_reach(probe: Probe):
    name = "\0perpetune-test-abstract"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        said = probe(
            f"""
            try:
                socket.socket(socket.AF_UNIX).connect({name!r})
                say("connected")
            except OSError as error:
                say(error.strerror)
            """
        )
    assert said in ("Connection refused", "Operation not permitted", "Permission denied")


@pytest.mark.parametrize(
    "path",
    [
        str(REPOSITORY / "protos" / "trial.py"),
        str(REPOSITORY / "engine_host" / "measure.py"),
        str(Path(__file__)),
        "/etc/passwd",
        "/root",
        "/home",
        "/var/log",
        "/dev/mem",
    ],
)
def test_a_file_outside_the_allow_list_cannot_be_read(residency: Residency, home: Path, path: str):
    body = f"open({path!r}).read()"
    line = ask_trial(residency, home, "hot", body, Limits())
    assert "No such file" in line or "Permission denied" in line or "Is a directory" in line
    listed = f"import os; raise RuntimeError(os.listdir({path!r}))"
    assert "RuntimeError" not in ask_trial(residency, home, "hot", listed, Limits())


def test_the_blobs_and_other_trees_of_the_home_are_out_of_sight(
    probe: Probe, home: Path, residency: Residency
):
    for folder in (home, home / "trees", home / "blobs"):
        said = probe(f"say(os.listdir({str(folder)!r}))")
        assert said.startswith(("PermissionError", "FileNotFoundError"))


@pytest.mark.parametrize(
    "room", ["protos", "services", "scheduler", "evaluator", "proposer", "engine_host", "msgspec"]
)
def test_nothing_of_ours_can_be_imported(residency: Residency, home: Path, room: str):
    line = ask_trial(residency, home, "hot", f"import {room}", Limits())
    assert line.startswith("ModuleNotFoundError")


def test_only_scratch_can_be_written(probe: Probe, residency: Residency):
    tree = residency.residents()[residency.start.release].spec.tree
    weights = str(residency.model.folder / "weights.bin")
    said = probe(
        f"""
        wrote = []
        places = ("/", "/usr/lib", "/etc", "/proc", "/dev", "/scratch", "/dev/shm",
                  {tree!r}, {tree!r} + "/fake", sys.prefix + "/lib")
        for place in places:
            try:
                open(place + "/written", "w").close()
                wrote.append(place)
            except OSError:
                pass
        for path in ({weights!r}, {tree!r} + "/fake/model.py"):
            try:
                open(path, "r+b").close()
                wrote.append(path)
            except OSError:
                pass
        say(wrote)
        """
    )
    assert said == "['/scratch', '/dev/shm']"


def test_scratch_is_private_and_empty_in_every_trial(probe: Probe):
    body = """
        found = os.listdir("/scratch") + os.listdir("/dev/shm")
        open("/scratch/left", "w").close()
        open("/dev/shm/left", "w").close()
        say(found)
        """
    assert "left" not in probe(body)
    assert "left" not in probe(body)


def test_other_processes_are_invisible(probe: Probe):
    assert probe("say([p for p in os.listdir('/proc') if p.isdigit()])") in ("['1']", "[]")


def test_the_host_cannot_be_signalled(probe: Probe):
    said = probe(
        f"""
        try:
            os.kill({os.getpid()}, 0)
            say("reached")
        except OSError as error:
            say(type(error).__name__)
        """
    )
    assert said in ("ProcessLookupError", "PermissionError")


def test_the_environment_is_its_own(
    monkeypatch: pytest.MonkeyPatch, residency: Residency, home: Path
):
    monkeypatch.setenv("PERPETUNE_SECRET_TOKEN", "swordfish")
    spec = residency.residents()[residency.start.release].spec
    resident = ForkStrategy().start(spec, "warm")
    try:
        resident.wait()
        (process,) = resident.take(Limits())
        assert b"swordfish" not in Path(f"/proc/{process.pid}/environ").read_bytes()
        process.end()
    finally:
        resident.close()
    body = "import os; raise RuntimeError(sorted(os.environ))"
    line = ask_trial(residency, home, "cold", body, Limits())
    assert "SECRET" not in line
    assert "HOME" in line


def test_no_descriptor_is_inherited_but_its_channel(probe: Probe):
    said = probe(
        """
        kinds = []
        for number in os.listdir("/proc/self/fd"):
            try:
                kinds.append(os.readlink("/proc/self/fd/" + number).split(":")[0])
            except OSError:
                pass
        say(sorted(kinds))
        """
    )
    assert said.count("socket") == 1
    assert said.count("/dev/null") == 3
    assert "anon_inode" not in said
    assert "pipe" not in said


def test_no_privilege_is_left(probe: Probe):
    said = probe(
        """
        wanted = ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp:")
        lines = [l.split() for l in open("/proc/self/status") if l.startswith(wanted)]
        say({name: int(value, 16) for name, value in lines})
        """
    )
    assert said == str({"CapPrm:": 0, "CapEff:": 0, "CapBnd:": 0, "NoNewPrivs:": 1, "Seccomp:": 2})


@pytest.mark.parametrize(
    "call",
    [
        "ptrace(16, 1, 0, 0)",
        "unshare(0x10000000)",
        "unshare(0x40000000)",
        "mount(b'none', b'/scratch', b'tmpfs', 0, None)",
        "umount2(b'/proc', 2)",
        "settimeofday(ctypes.create_string_buffer(16), None)",
        "adjtimex(ctypes.create_string_buffer(256))",
        "process_vm_readv(1, None, 0, None, 0, 0)",
        "syscall(321, 0, 0, 0)",
        "syscall(298, 0, 0, 0, 0, 0)",
        "syscall(425, 1, 0)",
        "syscall(250, 0, 0, 0, 0, 0)",
        "syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
        "chroot(b'/scratch')",
        "setns(0, 0)",
    ],
)
def test_a_forbidden_system_call_answers_not_permitted(residency: Residency, home: Path, call: str):
    body = f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        raise RuntimeError((libc.{call}, ctypes.get_errno()))
        """
    assert "(-1, 1)" in ask_trial(residency, home, "hot", body, Limits())


def test_a_limit_cannot_be_raised_again(probe: Probe):
    said = probe(
        """
        import resource
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))
            say("raised")
        except (ValueError, OSError) as error:
            say("refused")
        """
    )
    assert said == "refused"


def test_no_core_is_dumped(probe: Probe):
    assert probe("import resource; say(resource.getrlimit(resource.RLIMIT_CORE))") == "(0, 0)"


def test_twenty_gigabytes_are_refused_inside(probe: Probe):
    said = probe(
        """
        try:
            bytearray(20_000_000_000)
        except MemoryError:
            say("refused")
        """
    )
    assert said == "refused"


def test_memory_spread_over_many_processes_is_seen_from_outside(residency: Residency, home: Path):
    body = """
        import os, time
        for _ in range(12):
            if os.fork() == 0:
                held = bytearray(os.urandom(1) * 100_000_000)
                time.sleep(600)
        time.sleep(600)
        """
    limits = Limits(memory_bytes=500_000_000, prepare_s=30.0)
    assert "over the 0.5 GB limit" in ask_trial(residency, home, "hot", body, limits)


def test_a_fork_bomb_ends_with_its_trial(residency: Residency, home: Path):
    body = "import os\nwhile True:\n    os.fork()"
    limits = Limits(processes=16, prepare_s=30.0)
    said = ask_trial(residency, home, "hot", body, limits)
    # Counted from outside; for an ordinary user the kernel's own limit may come first.
    assert "more than 16 processes" in said or "temporarily unavailable" in said


def start_survivor(residency: Residency, home: Path, rung: str) -> TrialProcess:
    """A trial that has left a daemon behind: forked twice, in a session of its own."""
    body = """
        import os, time
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, b"x")
                time.sleep(600)
            os._exit(0)
        os.read(reader, 1)
        """
    process = residency.bring(with_step(residency, home, body), rung, Limits())
    process.ask("prepare", "prepare", 10.0)
    return process


@pytest.mark.parametrize("rung", RUNGS)
def test_nothing_survives_the_end_of_a_trial(residency: Residency, home: Path, rung: str):
    process = start_survivor(residency, home, rung)
    members = processes.tree(process.pid)
    assert len(members) >= 2
    assert process.end()
    assert not any(processes.alive(pid) for pid in members)


def test_freezing_stops_daemons_too(residency: Residency, home: Path):
    process = start_survivor(residency, home, "hot")
    process.freeze()
    states = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        for pid in processes.tree(process.pid)
        if processes.alive(pid)
    ]
    assert states
    assert set(states) == {"T"}
    process.end()


def test_a_zygote_is_confined_as_well(residency: Residency):
    resident = residency.residents()[residency.start.release]
    (zygote,) = [p for p in processes.tree(resident.pid) if p != resident.pid]  # type: ignore[attr-defined]
    for space in ("net", "mnt", "pid", "ipc", "uts"):
        assert os.readlink(f"/proc/{zygote}/ns/{space}") != os.readlink(f"/proc/self/ns/{space}")
    assert not os.path.exists(f"/proc/{zygote}/root{REPOSITORY}/protos")


def test_engines_end_when_their_host_is_killed(home: Path, tmp_path: Path):
    script = tmp_path / "host.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, time
            from pathlib import Path
            from engine_host.residency import Residency
            from engine_host.strategies import ForkStrategy
            from engine_host.targets import prepare_target
            from protos.target import Target
            from protos.trial import Limits
            from services.blobs import DirectoryBlobs
            home = Path({str(home)!r})
            blobs = DirectoryBlobs(home / "blobs")
            made = prepare_target(Target("fake", "anything"), "campaign", home, blobs)
            up = Residency("fake", made.model, made.start_side, blobs, home, ForkStrategy())
            up.bring_up()
            process = up.candidate(made.start_side, "hot", Limits())
            print(process.pid, flush=True)
            time.sleep(600)
            """
        )
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as host:
        assert host.stdout is not None
        host.stdout.readline()
        members = processes.tree(host.pid)
        assert len(members) >= 5
        host.kill()
    while any(processes.alive(pid) for pid in members):
        os.sched_yield()
