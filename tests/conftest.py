"""Which tests a machine can run. Nothing is skipped: what can't run here is left out, and said."""

import os
import shutil
import sys
from pathlib import Path

import pytest


def _lacking() -> dict[str, str]:
    """Markers of tests that can't run here, each with why."""
    found = {}
    if shutil.which("chromium") is None and not os.environ.get("CI"):
        found["browser"] = "chromium is not installed (CI has it)"
    if not (Path(sys.prefix).parent / ".venv-vllm" / "stamps" / "torch").exists():
        found["vllm"] = "vLLM's environment is not there (make vllm)"
    return found


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"{marker} tests left out: {why}" for marker, why in _lacking().items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lacking = _lacking()
    left_out = [item for item in items if any(item.get_closest_marker(m) for m in lacking)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
