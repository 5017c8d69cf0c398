"""The audit's battery: cheats that must be caught, honest candidates that must pass, null patches.

Each cheat is a public way to look fast without being it, made from slim's own sources.
"""

from benchmarks.battery.every import CHEATS, CONTROLS
from benchmarks.battery.fixture import CAUGHT, ROWS, Fixture
from benchmarks.battery.nulls import null_patches

__all__ = ["CAUGHT", "CHEATS", "CONTROLS", "ROWS", "Fixture", "null_patches"]
