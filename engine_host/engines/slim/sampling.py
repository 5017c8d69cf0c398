"""From logits to tokens."""

from collections.abc import Sequence as Listing
from random import Random

import torch

from .sequence import Sequence

_FEW = 1024


def choose_tokens(logits: torch.Tensor, sequences: Listing[Sequence]) -> list[int]:
    """The next token of each sequence. logits [rows, vocab], row i of sequence i."""
    tokens = logits.argmax(dim=-1).tolist()
    for row, sequence in enumerate(sequences):
        request = sequence.request
        if request.temperature > 0.0:
            draw = Random(f"{request.seed}/{sequence.outputs}").random()
            tokens[row] = sample(logits[row], request.temperature, request.top_p, draw)
    return tokens


def sample(logits: torch.Tensor, temperature: float, top_p: float, draw: float) -> int:
    """One token of the tempered distribution, cut to the fewest tokens that hold `top_p` of it.

    logits [vocab]; `draw`, uniform in [0, 1), decides alone, so a request's tokens depend neither
    on its neighbours nor on being computed again.
    """
    probabilities = torch.softmax(logits / temperature, dim=-1)
    if top_p == 1.0:
        return _pick(probabilities, draw)
    # Most often a few tokens hold that much; all are sorted only where they don't.
    likeliest, order = probabilities.topk(min(_FEW, probabilities.shape[0]))
    if float(likeliest.sum()) < top_p:
        likeliest, order = probabilities.sort(descending=True)
    before = likeliest.cumsum(dim=-1, dtype=torch.float64) - likeliest
    return int(order[_pick(likeliest[before < top_p], draw)])


def _pick(shares: torch.Tensor, draw: float) -> int:
    """Index of the share in which `draw`, times their sum, falls. shares [n]."""
    ends = shares.cumsum(dim=-1, dtype=torch.float64)
    index = int(torch.searchsorted(ends, draw * ends[-1], right=True))
    return min(index, shares.shape[0] - 1)


def logprobs_of(logits: torch.Tensor, tokens: Listing[int]) -> list[float]:
    """Log-probability, untempered, of one token in each row. logits [rows, vocab]."""
    chosen = torch.tensor(tokens, device=logits.device)[:, None]
    picked = logits.gather(1, chosen)[:, 0] - logits.logsumexp(dim=-1)
    return [float(value) for value in picked]
