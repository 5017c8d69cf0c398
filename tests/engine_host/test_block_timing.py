"""When a block counts, and how requests are sent and stamped, without any process."""

import time
from collections import deque
from typing import Any

import pytest

from engine_host.block import Quiet, Used, serve, void_reason
from engine_host.errors import TrialFailedError
from protos.trial import Request

WALL_NS = 100_000_000


class Scripted:
    """Stands for a trial process: answers each submission with prepared frames."""

    def __init__(self, *frames: dict[str, Any]) -> None:
        self.frames = deque(frames)
        self.sent: list[list[int]] = []
        self.now_ns = 0

    def send(self, message: dict[str, Any], phase: str, limit_s: float) -> None:
        self.sent.append([request["id"] for request in message["requests"]])

    def take(self, wait_s: float, phase: str) -> tuple[int, dict[str, Any]] | None:
        known = {number for batch in self.sent for number in batch}
        if not self.frames or not _numbers(self.frames[0]) <= known:
            return None  # an engine answers nothing that it wasn't asked
        return time.monotonic_ns(), self.frames.popleft()


def _numbers(frame: dict[str, Any]) -> set[int]:
    outputs = frame.get("out", [])
    return {o["id"] for o in outputs if isinstance(o, dict)} & {1, 2}


def out(number: int, *tokens: int, finish: str | None = None) -> dict[str, Any]:
    return {"out": [{"id": number, "tokens": list(tokens), "finish": finish, "logprobs": None}]}


def run(process: Scripted, *requests: Request) -> Any:
    return serve(process, requests, 5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("used", "void"),
    [
        (Used(50_000_000, 0, 0, 0), None),
        (Used(91_000_000, 900_000, 9_000_000, 0), None),
        (Used(50_000_000, 1_100_000, 0, 0), "frozen side used 1.1 ms"),
        (Used(89_000_000, 0, 11_000_000, 0), "kept waiting for 11%"),
        (Used(50_000_000, 0, 0, 10**9), "taken away"),
    ],
)
def test_a_block_is_void_when_somebody_else_ran(used: Used, void: str | None):
    found = void_reason(used, WALL_NS, Quiet())
    assert found is None if void is None else void in (found or "")


def test_requests_are_sent_at_their_times_and_counted_from_them():
    process = Scripted(out(1, 5), out(1, 6, finish="length"), out(2, 7, finish="length"))
    served = run(process, Request(2, (1,), 1, at_s=0.02), Request(1, (1,), 2))
    assert process.sent == [[1], [2]]
    late, first = served.requests
    assert (late.id, late.sent_ns, first.sent_ns) == (2, 20_000_000, 0)
    assert first.tokens == (5, 6)
    assert served.wall_ns == max(late.token_ns[-1], first.token_ns[-1])


def test_requests_due_together_are_sent_together():
    process = Scripted(out(1, 5, finish="length"), out(2, 5, finish="length"))
    run(process, Request(1, (1,), 1), Request(2, (1,), 1))
    assert process.sent == [[1, 2]]


def test_several_tokens_of_one_step_share_its_time():
    served = run(Scripted(out(1, 5, 6, 7, finish="length")), Request(1, (1,), 3))
    assert len(set(served.requests[0].token_ns)) == 1
    assert len(served.requests[0].token_ns) == 3


def test_a_failed_request_has_its_error_and_the_others_go_on():
    process = Scripted({"failed": 1, "error": "no room"}, out(2, 5, finish="stop"))
    failed, other = run(process, Request(1, (1,), 1), Request(2, (1,), 1)).requests
    assert (failed.error, failed.finish) == ("no room", None)
    assert (other.error, other.finish) == (None, "stop")


@pytest.mark.parametrize(
    "frame",
    [
        out(9, 1),
        out(1, 1, 2, 3),
        {"out": [{"id": True, "tokens": [1], "finish": None}]},
        {"out": [{"id": 1, "tokens": [1.5], "finish": None}]},
        {"out": [5]},
        {"failed": 9, "error": "x"},
        {"re": "step", "ok": False, "error": "it broke"},
        {},
    ],
)
def test_a_frame_that_makes_no_sense_ends_the_block(frame: dict[str, Any]):
    with pytest.raises(TrialFailedError):
        run(Scripted(frame), Request(1, (1,), 2))


def test_tokens_after_the_finish_end_the_block():
    frames = ({"out": [out(1, 5, finish="length")["out"][0], out(1, 6)["out"][0]]},)
    with pytest.raises(TrialFailedError, match="no open request"):
        run(Scripted(*frames), Request(1, (1,), 2))
