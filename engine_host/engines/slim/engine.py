"""The engine: takes requests, returns tokens, one scheduler iteration at a time."""

from typing import Any

import torch

from .batch import Batch, Span
from .blocks import BlockPool
from .kv_cache import KVCache
from .model import Model
from .sampling import choose_tokens, logprobs_of
from .scheduler import Scheduler
from .scoring import score_sequence
from .sequence import Sequence, parse_request
from .space import Knob, check_live, with_defaults
from .weights import Weights

_PRECISIONS = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Engine:
    """Serves one model in one process; docs/ENGINE.md is the protocol."""

    def __init__(
        self, weights: Weights, knobs: dict[str, Knob], precision: str = "bfloat16"
    ) -> None:
        """Build around mapped weights, without copying them unless the precision differs.

        Raises `ValueError` for a knob or precision that doesn't exist.
        """
        if precision not in _PRECISIONS:
            raise ValueError(f"precision is {' or '.join(_PRECISIONS)}, not '{precision}'")
        values = with_defaults(knobs)
        dtype = _PRECISIONS[precision]
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = weights.config
        pool = BlockPool(
            values["cache_tokens"] // values["block_size"],
            values["block_size"],
            values["prefix_caching"],
        )
        slots = pool.blocks * pool.block_size
        self.max_tokens_in_all = min(config.max_context, slots)
        self.model = Model(weights, config.max_context, dtype, device)
        self.cache = KVCache(config.layers, slots, config.kv_heads, config.head_dim, dtype, device)
        self.scheduler = Scheduler(pool, values["max_num_seqs"], values["prefill_chunk"])
        self._ids: set[int] = set()
        self._steps = 0
        self._output_tokens = 0
        self._apply_live(values)

    def set_knobs(self, knobs: dict[str, Knob]) -> None:
        """Change live knobs between steps. Raises `ValueError`, changing nothing, for any other."""
        check_live(knobs)
        self._apply_live(knobs)

    def submit(self, request: dict[str, Any]) -> None:
        """Queue a request. Raises `ValueError`, in one line, if it can't be served."""
        parsed = parse_request(request, self.model.config.vocab, self.max_tokens_in_all)
        if parsed.id in self._ids:
            raise ValueError(f"request {parsed.id} is already being served")
        self._ids.add(parsed.id)
        self.scheduler.add(Sequence(parsed, list(parsed.prompt)))

    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return self.scheduler.busy()

    def step(self) -> list[dict[str, Any]]:
        """Compute one iteration; return what each request that advanced got."""
        with torch.inference_mode():
            plan = self.scheduler.plan()
            outputs: list[dict[str, Any]] = []
            if plan.prefill:
                batch = self._batch(plan.prefill)
                outputs += self._advance(plan.prefill, self.model.prefill(batch, self.cache))
            if plan.decode:
                chunks = [(sequence, 1) for sequence in plan.decode]
                batch = self._batch(chunks)
                outputs += self._advance(chunks, self.model.decode(batch, self.cache))
        self._steps += 1
        return outputs

    def reset(self) -> None:
        """Forget every cached prefix. Raises `ValueError` while busy."""
        if self.busy():
            raise ValueError("an engine with unfinished requests can't be reset")
        self.scheduler.pool.forget()

    def score(self, sequences: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Teacher-forced log-probabilities, gaps and argmaxes of each sequence's output."""
        with torch.inference_mode():
            return [score_sequence(self.model, s["prompt"], s["output"]) for s in sequences]

    def counters(self) -> dict[str, int]:
        """Totals since the engine was built."""
        return {
            "prompt_tokens": self.scheduler.prompt_tokens,
            "cached_prompt_tokens": self.scheduler.cached_prompt_tokens,
            "output_tokens": self._output_tokens,
            "steps": self._steps,
            "preemptions": self.scheduler.preemptions,
        }

    def _apply_live(self, knobs: dict[str, Any]) -> None:
        if "threads" in knobs:
            torch.set_num_threads(knobs["threads"])
        if "onednn_min_rows" in knobs:
            self.model.onednn_min_rows = knobs["onednn_min_rows"]
        for name in ("max_num_seqs", "prefill_chunk", "decode_while_prefilling"):
            if name in knobs:
                setattr(self.scheduler, name, knobs[name])
        if "prefix_caching" in knobs:
            self.scheduler.pool.prefix_caching = knobs["prefix_caching"]

    def _batch(self, chunks: list[tuple[Sequence, int]]) -> Batch:
        """Lay out the next tokens of each sequence, as many as its chunk says."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        spans = []
        size = self.scheduler.pool.block_size
        for sequence, count in chunks:
            start, end = sequence.computed, sequence.computed + count
            spans.append(Span(len(tokens), len(tokens) + count, self._context(sequence, end)))
            tokens += sequence.tokens[start:end]
            positions += range(start, end)
            slots += [sequence.blocks[at // size] * size + at % size for at in range(start, end)]
        device = self.model.device
        rows = torch.tensor([tokens, positions, slots], device=device)
        return Batch(rows[0], rows[1], rows[2], spans)

    def _context(self, sequence: Sequence, end: int) -> slice | torch.Tensor:
        """Slots of a sequence's first `end` positions: a slice if its blocks lie in a row."""
        size = self.scheduler.pool.block_size
        blocks = sequence.blocks[: -(-end // size)]
        first = blocks[0]
        if blocks[-1] - first == len(blocks) - 1 and blocks == list(
            range(first, first + len(blocks))
        ):
            return slice(first * size, first * size + end)
        starts = torch.tensor(blocks, device=self.model.device) * size
        inside = torch.arange(size, device=self.model.device)
        return (starts[:, None] + inside).flatten()[:end]

    def _advance(
        self, chunks: list[tuple[Sequence, int]], hidden: torch.Tensor
    ) -> list[dict[str, Any]]:
        """Note what was computed; choose the next token of each sequence that is up to date."""
        rows, ready, end = [], [], 0
        for sequence, count in chunks:
            end += count
            sequence.computed += count
            self.scheduler.pool.remember(sequence)
            if not sequence.pending:
                rows.append(end - 1)
                ready.append(sequence)
        if not ready:
            return []
        logits = self.model.logits(hidden if len(rows) == hidden.shape[0] else hidden[rows])
        tokens = choose_tokens(logits, ready)
        wanted = any(sequence.request.logprobs for sequence in ready)
        logprobs = logprobs_of(logits, tokens) if wanted else [0.0] * len(tokens)
        outputs = [self._output(*made) for made in zip(ready, tokens, logprobs, strict=True)]
        done = [s for s, output in zip(ready, outputs, strict=True) if output["finish"]]
        self.scheduler.finish(done)
        return outputs

    def _output(self, sequence: Sequence, token: int, logprob: float) -> dict[str, Any]:
        """Append a token to its sequence and say so."""
        request = sequence.request
        sequence.tokens.append(token)
        sequence.outputs += 1
        self._output_tokens += 1
        finish = None
        if not request.ignore_eos and token in self.model.config.eos_ids:
            finish = "stop"
        elif sequence.outputs == request.max_tokens:
            finish = "length"
        if finish:
            self._ids.discard(request.id)
        return {
            "id": request.id,
            "tokens": [token],
            "finish": finish,
            "logprobs": [logprob] if request.logprobs else None,
        }
