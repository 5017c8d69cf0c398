"""The sources of slim's start release, as candidates see them."""

from __future__ import annotations

from pathlib import Path

import engine_host


def slim_sources() -> dict[str, str]:
    """Path in the tree (`slim/model.py`) to text."""
    root = Path(engine_host.__file__).parent / "engines" / "slim"
    found = [*root.rglob("*.py"), *root.rglob("*.c")]
    return {f"slim/{path.relative_to(root)}": path.read_text() for path in sorted(found)}
