"""Which block of the cache belongs to whom, and which hold a prefix that can be used again."""

from collections import OrderedDict
from hashlib import blake2b

from .sequence import Sequence


class BlockPool:
    """Fixed-size blocks of the cache, counted by use.

    A full block is known by the digest of all tokens up to its end. A block nobody uses any more
    keeps its content, if it is known, until space is needed; the one unused for longest goes first.
    """

    def __init__(self, blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._blocks = blocks
        self.forget()

    def forget(self) -> None:
        """Start over with every block free. Nothing may be in use."""
        self._free = bytearray(b"\1" * self._blocks)
        self._free_count = self._blocks
        self._users = [0] * self._blocks
        self._digest_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()

    @property
    def blocks(self) -> int:
        """Blocks in all."""
        return self._blocks

    @property
    def available(self) -> int:
        """Blocks that could be taken now, counting those that hold an unused prefix."""
        return self._free_count + len(self._unused)

    def missing(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that a sequence lacks to hold this many tokens."""
        return max(0, -(-tokens // self.block_size) - len(sequence.blocks))

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Give a sequence blocks for this many tokens; False, and no change, if too few exist."""
        missing = self.missing(sequence, tokens)
        if missing > self.available:
            return False
        for _ in range(missing):
            sequence.blocks.append(self._take(sequence.blocks[-1] + 1 if sequence.blocks else None))
        return True

    def match_prefix(self, sequence: Sequence) -> int:
        """Give a sequence without blocks the known ones of its prefix; return the tokens they hold.

        The last token is never matched: it has to be computed for its logits.
        """
        if not self.prefix_caching:
            return 0
        for index in range((len(sequence.tokens) - 1) // self.block_size):
            block = self._block_of.get(self._digest(sequence, index))
            if block is None:
                break
            self._unused.pop(block, None)
            self._users[block] += 1
            sequence.blocks.append(block)
        return len(sequence.blocks) * self.block_size

    def remember(self, sequence: Sequence) -> None:
        """Make the full, computed blocks of a sequence known."""
        if not self.prefix_caching:
            return
        for index in range(sequence.known_blocks, sequence.computed // self.block_size):
            block, digest = sequence.blocks[index], self._digest(sequence, index)
            if digest not in self._block_of and block not in self._digest_of:
                self._block_of[digest], self._digest_of[block] = block, digest
            sequence.known_blocks = index + 1

    def release(self, sequence: Sequence) -> None:
        """Take back a sequence's blocks; the end of a prefix is given up before its start."""
        for block in reversed(sequence.blocks):
            self._users[block] -= 1
            if self._users[block]:
                continue
            if block in self._digest_of:
                self._unused[block] = None
            else:
                self._free[block] = 1
                self._free_count += 1
        sequence.blocks = []
        sequence.known_blocks = 0

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """Digest of all tokens up to the end of block `index`, kept with the sequence."""
        digests = sequence.digests
        while len(digests) <= index:
            start = len(digests) * self.block_size
            content = repr(sequence.tokens[start : start + self.block_size]).encode()
            before = digests[-1] if digests else b""
            digests.append(blake2b(before + content, digest_size=16).digest())
        return digests[index]

    def _take(self, wanted: int | None) -> int:
        if self._free_count:
            block = wanted if wanted is not None and self._is_free(wanted) else self._roomy()
            self._free[block] = 0
            self._free_count -= 1
        else:
            block, _ = self._unused.popitem(last=False)
            del self._block_of[self._digest_of.pop(block)]
        self._users[block] = 1
        return block

    def _is_free(self, block: int) -> bool:
        return block < self._blocks and self._free[block] == 1

    def _roomy(self) -> int:
        """A free block with many free ones after it, so that sequences grow in a row.

        The middle of the longest free run leaves room to whoever owns the block before it.
        """
        length = max(map(len, self._free.split(b"\0")))
        start = self._free.find(b"\1" * length)
        return start if start == 0 else start + length // 2
