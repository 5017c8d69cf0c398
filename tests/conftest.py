"""Which tests a machine can run. Nothing is skipped: what can't run here is left out, and said."""

import os
import shutil

import pytest


def pytest_report_header(config: pytest.Config) -> str | None:
    if shutil.which("chromium") is None and not os.environ.get("CI"):
        return "browser tests left out: chromium is not installed (CI has it)"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if shutil.which("chromium") is not None or os.environ.get("CI"):
        return
    left_out = [item for item in items if item.get_closest_marker("browser")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
