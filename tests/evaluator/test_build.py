"""The build sandbox: what it makes, what it keeps out, and what it stops."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluator import build as build_module
from evaluator.build import BuildLimits, BuildRefused, build_key, build_library
from evaluator.flags import flag_fault, source_fault
from protos.candidate import Build
from services.blobs import DirectoryBlobs, MemoryBlobs

TWICE = "#include <math.h>\nfloat twice(float x) { return 2 * sqrtf(x * x); }\n"
PATH = "slim/csrc/twice.c"
CHILD = Path(build_module.__file__).with_name("build_child.py")


def make(
    source: str,
    tmp_path: Path,
    flags: tuple[str, ...] = ("-O3",),
    limits: BuildLimits | None = None,
    **headers: str,
) -> str:
    build = Build("twice", (PATH,), flags)
    sources = {PATH: source.encode(), **{p: text.encode() for p, text in headers.items()}}
    return build_library(build, sources, MemoryBlobs(), tmp_path / "builds", limits)


def confined(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run another program where the compiler runs."""
    limits = ["20", "2000000000", "1000000", str(os.getpid())]
    return subprocess.run(
        [sys.executable, "-I", "-S", str(CHILD), str(tmp_path), *limits, *command],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_built_library_works(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    build = Build("twice", (PATH,), ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-lm"))
    digest = build_library(build, {PATH: TWICE.encode()}, blobs, tmp_path / "builds")
    library = ctypes.CDLL(str(blobs.path(digest)))
    library.twice.restype = ctypes.c_float
    assert library.twice(ctypes.c_float(21.0)) == 42.0


def test_the_same_build_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, build = MemoryBlobs(), Build("twice", (PATH,))
    first = build_library(build, {PATH: TWICE.encode()}, blobs, tmp_path)

    def never(*_: object) -> bytes:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(build_module, "_compile", never)
    assert build_library(build, {PATH: TWICE.encode()}, blobs, tmp_path) == first


def test_a_library_whose_blob_is_gone_is_made_again(tmp_path: Path) -> None:
    build = Build("twice", (PATH,))
    first = build_library(build, {PATH: TWICE.encode()}, MemoryBlobs(), tmp_path)
    emptied = MemoryBlobs()
    assert build_library(build, {PATH: TWICE.encode()}, emptied, tmp_path) == first
    assert emptied.has(first)


def test_sources_headers_and_flags_are_part_of_the_key() -> None:
    build, header = Build("twice", (PATH,)), "slim/csrc/t.h"
    keys = {
        build_key(build, {PATH: b"int a;"}),
        build_key(build, {PATH: b"int b;"}),
        build_key(build, {PATH: b"int a;", header: b"int c;"}),
        build_key(Build("twice", (PATH,), ("-O2",)), {PATH: b"int a;"}),
        build_key(Build("other", (PATH,)), {PATH: b"int a;"}),
    }
    assert len(keys) == 5


def test_a_header_beside_the_source_can_be_included(tmp_path: Path) -> None:
    make(
        '#include "t.h"\nint f(void) { return T; }\n', tmp_path, **{"slim/csrc/t.h": "#define T 3"}
    )


def test_a_compile_error_is_one_line_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(BuildRefused) as caught:
        make("int f(void) { return x; }\n", tmp_path)
    assert str(caught.value).startswith("twice: slim/csrc/twice.c:1:")
    assert "undeclared" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/passwd"',
        '#include "../../secret.h"',
        "#include </etc/passwd>",
        "#include <../etc/passwd>",
        '#define H "/etc/passwd"\n#include H',
        '#inc\\\nlude "/etc/passwd"',
        '%:include "/etc/passwd"',
        '# /* x */ include "/etc/passwd"',
        '#include_next "x.h"',
        '#embed "/etc/passwd"',
        '__asm__(".incbin \\"/etc/passwd\\"");',
    ],
)
def test_an_include_from_outside_is_refused_before_compiling(line: str) -> None:
    assert source_fault(PATH, f"{line}\nint f;\n", {PATH: b""})


def test_the_sandbox_itself_keeps_a_hidden_include_out(tmp_path: Path) -> None:
    """Spelt so that no rule about text finds it: the assembler is told to include a file."""
    secret = tmp_path / "secret"
    secret.write_text("perpetune")
    for path in (str(secret), "/etc/passwd", str(Path.home() / ".bashrc")):
        with pytest.raises(BuildRefused, match="twice"):
            make(f'int f;\n__asm__(".inc" "bin \\"{path}\\"");\n', tmp_path)


def test_nothing_but_the_toolchain_and_the_scratch_folder_can_be_read(tmp_path: Path) -> None:
    scratch, other = tmp_path / "scratch", tmp_path / "other"
    scratch.mkdir()
    other.write_text("secret")
    for path in ("/etc/passwd", str(other), str(Path(__file__)), "/proc/self/environ"):
        done = confined(scratch, "/bin/cat", path)
        assert done.returncode != 0
        assert done.stdout == ""
    (scratch / "mine").write_text("mine")
    assert confined(scratch, "/bin/cat", "mine").stdout == "mine"


def test_nothing_outside_the_scratch_folder_can_be_written(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert confined(scratch, "/bin/sh", "-c", f"echo x > {tmp_path}/out").returncode != 0
    assert not (tmp_path / "out").exists()
    assert confined(scratch, "/bin/sh", "-c", "echo x > out").returncode == 0


def test_the_network_is_out_of_reach(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        done = confined(tmp_path, "/bin/bash", "-c", f"echo x > /dev/tcp/127.0.0.1/{port}")
        assert done.returncode != 0
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_secret_of_the_environment_gets_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    assert "API_KEY" not in confined(tmp_path, "/usr/bin/env").stdout


def test_a_build_only_takes_idle_time(tmp_path: Path) -> None:
    limits = ["20", "2000000000", "1000000", str(os.getpid())]
    command = [sys.executable, "-I", "-S", str(CHILD), str(tmp_path), *limits]
    with subprocess.Popen([*command, "/bin/sleep", "60"]) as process:
        try:
            comm = Path(f"/proc/{process.pid}/comm")
            until = time.monotonic() + 20
            while comm.read_text().strip() != "sleep" and time.monotonic() < until:
                assert process.poll() is None
            assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
        finally:
            process.kill()


def test_a_macro_bomb_runs_into_the_limits(tmp_path: Path) -> None:
    lines = ["#define A0 x x x x x x x x x x"]
    for i in range(1, 12):
        lines.append(f"#define A{i} " + " ".join([f"A{i - 1}"] * 10))
    bomb = "\n".join([*lines, "int y[] = {A11};"])
    limits = BuildLimits(wall_s=20.0, cpu_s=2, memory_bytes=400_000_000)
    with pytest.raises(BuildRefused, match="limits"):
        make(bomb, tmp_path, limits=limits)


def test_a_compiler_that_hangs_is_ended_with_its_helpers(tmp_path: Path) -> None:
    lines = ["#define A0 x x x x x x x x x x"]
    for i in range(1, 12):
        lines.append(f"#define A{i} " + " ".join([f"A{i - 1}"] * 10))
    bomb = "\n".join([*lines, "int y[] = {A11};"])
    with pytest.raises(BuildRefused, match="took more than"):
        make(bomb, tmp_path, limits=BuildLimits(wall_s=0.5))


def test_an_endless_include_of_itself_is_refused(tmp_path: Path) -> None:
    headers = {"slim/csrc/t.h": '#include "t.h"\n#include "t.h"\n'}
    limits = BuildLimits(wall_s=20.0, cpu_s=5, memory_bytes=400_000_000)
    with pytest.raises(BuildRefused, match="twice"):
        make('#include "t.h"\nint f;\n', tmp_path, limits=limits, **headers)


def test_a_huge_output_is_refused(tmp_path: Path) -> None:
    limits = BuildLimits(file_bytes=1_000_000)
    with pytest.raises(BuildRefused, match="limits"):
        make("char big[50000000] = {1};\n", tmp_path, limits=limits)


@pytest.mark.parametrize(
    "flag",
    [
        "-fplugin=x.so",
        "-fplugin-arg-x=1",
        "-I/etc",
        "-include/etc/passwd",
        "-Wl,-rpath,/x",
        "-Wa,-x",
        "-B/tmp",
        "-specs=x",
        "@file",
        "-o",
        "x.c",
        "-lssl",
        "-fdump-tree-all",
        "-fprofile-generate",
        "-DX=`id`",
        "-D X",
        "-O3 -fplugin=x",
        "-fopt-info=/tmp/x",
        "-fuse-ld=/x",
    ],
)
def test_other_flags_are_refused(flag: str) -> None:
    assert flag_fault(flag)


@pytest.mark.parametrize(
    "flag",
    ["-O3", "-Ofast", "-march=native", "-mavx512bf16", "-mprefer-vector-width=512", "-ffast-math",
     "-fopenmp", "-funroll-loops", "-fno-math-errno", "-std=c11", "-std=gnu17", "-DHEADS=9",
     "-DUSE_AMX", "-lm", "-pthread", "-ffp-contract=fast", "-Wall"],
)  # fmt: skip
def test_flags_that_kernels_need_are_allowed(flag: str) -> None:
    assert flag_fault(flag) is None
