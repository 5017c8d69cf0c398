"""Continuous batching: who runs, and which tokens the next step computes."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from .blocks import BlockPool
from .sequence import Sequence


@dataclass
class Plan:
    """One step: chunks of prompts, each with its number of tokens, and sequences that decode."""

    prefill: list[tuple[Sequence, int]] = field(default_factory=list)
    decode: list[Sequence] = field(default_factory=list)


class Scheduler:
    """First come, first served. If the cache is full, the youngest running sequence gives way."""

    def __init__(self, pool: BlockPool, max_num_seqs: int, prefill_chunk: int) -> None:
        self.pool = pool
        self.max_num_seqs = max_num_seqs
        self.prefill_chunk = prefill_chunk
        self.decode_while_prefilling = True
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.preemptions = 0

    def busy(self) -> bool:
        """Whether any sequence is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self.waiting.append(sequence)

    def plan(self) -> Plan:
        """Admit who fits, give the decoding sequences their next slot, and share out the step."""
        self._admit()
        plan = Plan()
        budget = self.prefill_chunk
        for sequence in self.running:
            if sequence.pending > 1 and budget:
                tokens = min(sequence.pending, budget)
                budget -= tokens
                plan.prefill.append((sequence, tokens))
        if self.decode_while_prefilling or not plan.prefill:
            self._make_room()
            plan.decode = [sequence for sequence in self.running if sequence.pending == 1]
            plan.prefill = [chunk for chunk in plan.prefill if chunk[0].blocks]
        return plan

    def finish(self, sequences: Iterable[Sequence]) -> None:
        """Take finished sequences out and give their blocks back."""
        for sequence in sequences:
            self.running.remove(sequence)
            self.pool.release(sequence)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            cached = self.pool.match_prefix(sequence)
            # One spare block for each running sequence, so that a newcomer isn't sent away at once.
            needed = self.pool.missing(sequence, len(sequence.tokens)) + len(self.running)
            if needed > self.pool.available:
                self.pool.release(sequence)
                return
            self.pool.grow(sequence, len(sequence.tokens))
            sequence.computed = cached
            sequence.known_blocks = cached // self.pool.block_size
            if not sequence.admitted:
                sequence.admitted = True
                self.prompt_tokens += len(sequence.request.prompt)
                self.cached_prompt_tokens += cached
            self.running.append(self.waiting.popleft())

    def _make_room(self) -> None:
        """Give every decoding sequence the slot of its next token, oldest first."""
        for sequence in list(self.running):
            while sequence.blocks and not self.pool.grow(sequence, len(sequence.tokens)):
                self._preempt(self.running[-1])

    def _preempt(self, sequence: Sequence) -> None:
        """Send a sequence back to the queue's head; what it had is computed again later."""
        self.running.remove(sequence)
        self.pool.release(sequence)
        sequence.computed = 0
        self.waiting.appendleft(sequence)
        self.preemptions += 1
