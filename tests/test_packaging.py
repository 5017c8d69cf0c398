"""What an installed Perpetune holds, and what its lock files promise."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK_NAMES = ("runtime", "dev", "model", "vllm", "openevolve")
LOCKS = [ROOT / "requirements" / f"{name}.txt" for name in LOCK_NAMES]
PACKAGES = ("protos", "services", "scheduler", "proposer", "evaluator", "engine_host", "benchmarks")


def tracked(pattern: str) -> list[Path]:
    """Files of the packages, whether committed yet or not."""
    found = (path for name in PACKAGES for path in (ROOT / name).rglob(pattern))
    return sorted(path for path in found if "__pycache__" not in path.parts)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source")
    copied = ["pyproject.toml", "README.md", *PACKAGES]
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in copied), str(source)], check=True)
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*argv, "-w", str(out), str(source)], check=True, capture_output=True)
    return set(zipfile.ZipFile(next(out.glob("*.whl"))).namelist())


@pytest.mark.parametrize("pattern", ["*.py", "*.c", "*.h", "*.txt", "*.css"])
def test_a_wheel_holds_every_file_of_the_packages(wheel, pattern):
    wanted = {str(path.relative_to(ROOT)) for path in tracked(pattern)}

    assert wanted - wheel == set()


def test_a_wheel_holds_no_tests(wheel):
    assert not [name for name in wheel if name.startswith("tests/")]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_locked_version_has_hashes_and_no_index_is_named(lock):
    text = lock.read_text()
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==.*?(?=^\S|\Z)", text, flags=re.M | re.S)
    bodies = re.split(r"^(?=[A-Za-z0-9_.-]+==)", text, flags=re.M)[1:]

    assert len(pins) == len(bodies) > 0
    assert all("--hash=sha256:" in body for body in bodies)
    assert not re.search(r"index-url|find-links|trusted-host|https?://", text)


def test_torch_is_locked_nowhere_and_named_once():
    for lock in LOCKS:
        assert not re.search(r"^(torch|triton|nvidia-[a-z0-9-]+)==", lock.read_text(), flags=re.M)
    assert "torch==" in (ROOT / "requirements" / "torch.txt").read_text()


def test_every_dependency_of_pyproject_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for name, extra in project["optional-dependencies"].items():
        wanted += extra if name != "all" else []
    names = {re.split(r"[<>=!;\[ ]", line)[0].lower() for line in wanted}
    locked = set(re.findall(r"^([a-z0-9_.-]+)==", LOCKS[1].read_text(), flags=re.M))

    assert names - locked == set()


def test_every_dependency_says_which_file_needs_it():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    specs = [number for number, line in enumerate(lines) if re.match(r'    "[a-z0-9-]+>=', line)]

    assert specs
    for number in specs:
        assert "#" in lines[number] or lines[number - 1].lstrip().startswith("#"), lines[number]


def test_torch_is_imported_by_engines_only():
    for path in tracked("*.py"):
        imported = imports_of(path)
        where = path.relative_to(ROOT).parts
        if where[:2] != ("engine_host", "engines") and where[0] != "benchmarks":
            assert "torch" not in imported, path


def test_nats_is_imported_by_services_only():
    for path in tracked("*.py"):
        if path.relative_to(ROOT).parts[0] != "services":
            assert "nats" not in imports_of(path), path


def imports_of(path: Path) -> set[str]:
    """Top-level names of every import in a file, those inside functions included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_engines_and_their_processes_import_nothing_of_ours_but_what_lies_beside_them():
    for path in tracked("*.py"):
        if path.relative_to(ROOT).parts[:2] in (
            ("engine_host", "engines"),
            ("engine_host", "child"),
        ):
            assert imports_of(path).isdisjoint(PACKAGES), path
