"""All fixtures, in the order of their modules."""

from __future__ import annotations

from types import ModuleType

from benchmarks.battery import controls, elsewhere, kernels, nonsense, outputs, replay, rivals
from benchmarks.battery.fixture import Fixture


def _of(*modules: ModuleType) -> tuple[Fixture, ...]:
    found = [vars(module).values() for module in modules]
    return tuple(value for values in found for value in values if isinstance(value, Fixture))


CHEATS = _of(elsewhere, replay, outputs, nonsense, rivals, kernels)
CONTROLS = _of(controls)
