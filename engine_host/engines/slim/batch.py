"""What one pass of the model works on."""

from collections.abc import Sequence as Listing
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Span:
    """The rows of one sequence in a batch.

    Rows `start` to `end` of the batch are its newest tokens; `context` picks the cache slots of all
    its positions up to the newest: a slice where they lie in a row, else a tensor of slot numbers.
    """

    start: int
    end: int
    context: slice | torch.Tensor


@dataclass(frozen=True)
class Batch:
    """Tokens to compute, those of one sequence next to each other.

    tokens, positions (in the sequence) and slots (in the cache): int64 [rows].
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    spans: Listing[Span]
