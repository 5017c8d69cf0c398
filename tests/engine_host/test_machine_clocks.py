"""How much of the machine others had: what was neither idle nor known."""

from __future__ import annotations

import pytest

from engine_host import processes
from engine_host.processes import Machine

WALL_NS = 200_000_000


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "CORES", 2)


@pytest.mark.parametrize(
    ("idle_ns", "known_ns", "others_ns"),
    [
        (0, 2 * WALL_NS, 0),  # the side had both cores
        (0, WALL_NS, WALL_NS),  # a hog had the other one
        (WALL_NS, WALL_NS, 0),  # both its threads on one core: the other stood idle
        (WALL_NS // 2, WALL_NS, WALL_NS // 2),
        (2 * WALL_NS, 1_000_000, 0),  # clocks of different grain never make it negative
    ],
)
def test_others_had_what_was_neither_idle_nor_known(
    idle_ns: int, known_ns: int, others_ns: int
) -> None:
    before = Machine(at_ns=5, idle_ns=70, steal_ns=30)
    after = Machine(5 + WALL_NS, 70 + idle_ns, 30)
    assert before.others_ns(after, known_ns) == others_ns


def test_what_was_stolen_is_counted_between_two_moments() -> None:
    assert Machine(0, 0, 30).stolen_ns(Machine(1, 0, 50)) == 20


def test_the_kernels_clocks_are_read_in_order() -> None:
    first, second = processes.machine(), processes.machine()
    assert second.at_ns > first.at_ns
    assert second.idle_ns >= first.idle_ns > 0
    assert second.steal_ns >= first.steal_ns
