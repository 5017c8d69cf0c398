"""Who runs next in the fake engine: first come, first served, up to a batch."""

from dataclasses import dataclass, field


@dataclass
class Sequence:
    id: int
    prompt: list[int]
    max_tokens: int
    state: bytes = b""
    outputs: int = 0
    logprobs: bool = False


@dataclass
class Scheduler:
    max_batch: int
    waiting: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def admit(self) -> list[Sequence]:
        """Move waiting sequences into the batch while there is room; returns them."""
        admitted = []
        while self.waiting and len(self.running) < self.max_batch:
            sequence = self.waiting.pop(0)
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def finish(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
