"""The fake engine's weights: bytes that seed its hashes."""

import mmap
import os
from dataclasses import dataclass

VOCAB = 512


@dataclass(frozen=True)
class Weights:
    seed: bytes


def load_weights(folder: str) -> Weights:
    """Map `weights.bin` read-only; its first 32 bytes are the seed."""
    with open(os.path.join(folder, "weights.bin"), "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        seed = bytes(mapped[:32])
        mapped.close()
    return Weights(seed)
