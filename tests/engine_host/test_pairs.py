"""The sides of a pair in turns: who runs when, whose fault an end is, and what counts as idle."""

from collections import deque
from typing import Any, Literal

import pytest

from engine_host import pairs
from engine_host.block import Quiet
from engine_host.errors import TrialFailedError
from engine_host.pairs import SideFailedError, closed_loop, in_turns, one_after_the_other
from engine_host.processes import Usage
from protos.trial import BlockSample, PairScript, Request

ANY_NOISE = Quiet(waited_share=2.0, steal_share=1e9)
Name = Literal["A", "B"]


class Player:
    """Stands for a trial process: answers with prepared frames, and notes when it is woken."""

    def __init__(self, name: str, log: list[str], *frames: dict[str, Any]) -> None:
        self.name, self.log, self.frames = name, log, deque(frames)
        self.idle_cpu_ns = 0  # grows while it should stand still
        self.cpu_ns = 0
        self.running = False

    def thaw(self) -> None:
        self.running = True

    def halt(self) -> None:
        self.running = False

    freeze = halt

    def stand_still(self, phase: str) -> None:
        self.halt()

    def ask(self, op: str, phase: str, limit_s: float) -> None:
        self.log.append(f"{self.name} {op}")

    def send(self, message: dict[str, Any], phase: str, limit_s: float) -> None:
        self.log.append(f"{self.name} asked")

    def take(self, wait_s: float, phase: str) -> tuple[int, dict[str, Any]]:
        assert self.running
        if not self.frames:
            raise TrialFailedError("block", "its process ended")
        self.log.append(f"{self.name} says")
        self.cpu_ns += 1_000_000
        return pairs.time.monotonic_ns(), self.frames.popleft()

    def usage_when_still(self) -> Usage:
        return self.usage()

    def usage(self) -> Usage:
        if not self.running:
            self.cpu_ns += self.idle_cpu_ns
        return Usage(self.cpu_ns, 0)


def says(*tokens: int) -> list[dict[str, Any]]:
    """One frame a token, the last one with its end."""
    ends = [None] * (len(tokens) - 1) + ["length"]
    return [
        {"out": [{"id": 1, "tokens": [token], "finish": end, "logprobs": None}]}
        for token, end in zip(tokens, ends, strict=True)
    ]


def play(
    a: Player, b: Player, run: Any = in_turns, first: Name = "B"
) -> tuple[BlockSample, BlockSample]:
    pair = PairScript(first, (Request(1, (5,), 3),))
    blocks = run({"A": a, "B": b}, [], pair, 4, 0, 5.0, ANY_NOISE)
    assert [block.position for block in blocks] == [0, 1]
    assert blocks[0].side == first
    return blocks[0], blocks[1]


@pytest.fixture(autouse=True)
def _shortest_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "TURN_S", 0.0)


def test_sides_take_turns_at_every_output_starting_with_the_one_drawn() -> None:
    log: list[str] = []
    first, second = play(Player("A", log, *says(1, 2, 3)), Player("B", log, *says(1, 2, 3)))
    spoken = [line[0] for line in log if line.endswith("says")]
    assert spoken == ["B", "A", "B", "A", "B", "A"]
    assert log[:2] == ["B reset", "A reset"]
    assert first.requests[0].tokens == second.requests[0].tokens == (1, 2, 3)


def test_a_side_that_is_done_lets_the_other_finish_alone() -> None:
    log: list[str] = []
    play(Player("A", log, *says(1, 2, 3)), Player("B", log, *says(9)))
    assert [line[0] for line in log if line.endswith("says")] == ["B", "A", "A", "A"]


def test_a_clock_runs_only_in_its_own_turns() -> None:
    log: list[str] = []
    blocks = play(Player("A", log, *says(1, 2, 3)), Player("B", log, *says(1, 2, 3)))
    for block in blocks:
        stamps = block.requests[0].token_ns
        assert list(stamps) == sorted(stamps)
        assert stamps[-1] == block.wall_ns


@pytest.mark.parametrize("run", [in_turns, one_after_the_other])
@pytest.mark.parametrize("broken", ["A", "B"])
def test_the_side_that_broke_is_named(run: Any, broken: str) -> None:
    log: list[str] = []
    players = [Player(name, log, *([] if name == broken else says(1, 2, 3))) for name in "AB"]
    with pytest.raises(SideFailedError) as caught:
        play(*players, run=run)
    assert caught.value.side == broken
    assert caught.value.failure.detail == "its process ended"


def test_a_side_that_works_out_of_turn_makes_the_others_block_void() -> None:
    log: list[str] = []
    b = Player("B", log, *says(1, 2, 3))
    b.idle_cpu_ns = 2_000_000
    first, second = play(Player("A", log, *says(1, 2, 3)), b)
    assert (first.side, first.void) == ("B", None)
    assert second.void is not None
    assert "frozen side used" in second.void


def test_only_requests_that_are_sent_at_once_can_be_stopped_in_between() -> None:
    assert closed_loop(PairScript("A", (Request(1, (5,), 3), Request(2, (5,), 3))))
    assert not closed_loop(PairScript("A", (Request(1, (5,), 3), Request(2, (5,), 3, at_s=0.5))))
