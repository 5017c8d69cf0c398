"""What runs beside engine code imports nothing but the standard library and itself."""

import ast
import sys
from pathlib import Path

import pytest

from engine_host import sandbox

FILES = sorted(sandbox.CHILD_FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_child_file_imports_only_the_standard_library(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_the_view_holds_no_room_and_no_package_that_an_engine_does_not_need():
    seen = sandbox.view(("torch", "numpy"), ())
    names = {Path(path).name for path in seen}
    rooms = {"protos", "services", "scheduler", "evaluator", "proposer", "engine_host", "tests"}
    assert not names & (rooms | {"msgspec", "nats", "structlog", "optuna", "opentelemetry"})
    assert {"torch", "numpy", "child"} <= names


def test_a_childs_environment_holds_nothing_of_the_hosts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERPETUNE_SECRET", "swordfish")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    assert "swordfish" not in str(sandbox.environment())
