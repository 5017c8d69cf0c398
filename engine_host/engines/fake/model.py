"""The fake model: next tokens by hashing."""

import hashlib
import struct

from .weights import VOCAB, Weights


class Model:
    """Holds one digest a sequence, so that a token costs the same wherever it stands."""

    def __init__(self, weights: Weights, rounds: int) -> None:
        self.seed = weights.seed
        self.rounds = rounds

    def start(self, tokens: list[int]) -> bytes:
        """The state after a prompt."""
        return extend(self.seed, tokens)

    def decode(self, states: list[bytes]) -> list[tuple[int, bytes]]:
        """Next token and state of each sequence; one step's work, however many there are."""
        self.work()
        return [self.next(state) for state in states]

    def next(self, state: bytes) -> tuple[int, bytes]:
        token = pick(state)
        return token, extend(state, [token])

    def work(self) -> None:
        spin(self.rounds)


def extend(state: bytes, tokens: list[int]) -> bytes:
    return hashlib.sha256(state + struct.pack(f"<{len(tokens)}I", *tokens)).digest()


def pick(state: bytes) -> int:
    return int.from_bytes(state[:4], "little") % VOCAB


def spin(rounds: int) -> None:
    """Burn a known amount of processor."""
    block = b"\0" * 64
    for _ in range(rounds):
        block = hashlib.sha256(block).digest()
