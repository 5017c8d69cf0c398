"""The memory's bandwidth as the host measures it."""

from __future__ import annotations

import pytest

from engine_host import bandwidth
from engine_host.bandwidth import Bandwidth, read_bytes_s


def test_a_process_of_its_own_says_how_fast_memory_is_read() -> None:
    found = Bandwidth().bytes_s()
    assert found is not None
    assert found > 0


def test_a_figure_is_kept_while_it_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter([5, 7])
    monkeypatch.setattr(bandwidth, "_ask", lambda: next(said))
    asked = Bandwidth()
    assert [asked.bytes_s(), asked.bytes_s()] == [5, 5]
    monkeypatch.setattr(bandwidth, "FRESH_S", -1.0)
    assert asked.bytes_s() == 7


def test_where_it_cannot_be_measured_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "LIMIT_S", 0.0)
    assert Bandwidth().bytes_s() is None


def test_every_byte_of_the_best_pass_counts() -> None:
    assert read_bytes_s(size=1 << 20, passes=2) > 1 << 20
