"""Batch-1 decode of slim's start release against transformers' `generate`, in one run.

    python -m benchmarks.decode_vs_transformers [--rounds 6] [--tokens 64] [--home DIR]

The two take turns, in bfloat16, on the same prompts, with the same number of threads. A side's rate
is output tokens after the first over the time after the first, so both leave the prompt out. The
last line is JSON: the median rate of each, and the median of the rounds' ratios.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine_host.engines.slim import Engine, load_weights
from engine_host.models import prepare


def transformers_model(folder: Path) -> Any:
    """The prepared folder as transformers' model, in bfloat16, that never stops early."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    left_out = ("architectures", "model_type", "dtype", "bos_token_id", "eos_token_id")
    settings = {key: value for key, value in raw.items() if key not in left_out}
    config = LlamaConfig(**settings, bos_token_id=None, eos_token_id=None)
    model: Any = LlamaForCausalLM(config)
    model = model.to(torch.bfloat16).eval()
    content = bytearray((folder / "weights.bin").read_bytes())
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))["tensors"]
    tensors = {}
    for name, entry in index.items():
        count, offset = math.prod(entry["shape"]), entry["offset"]
        flat = torch.frombuffer(content, dtype=torch.bfloat16, count=count, offset=offset)
        tensors[name] = flat.view(entry["shape"])
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model


class _FirstToken:
    """A streamer that notes when the first token after the prompt arrived."""

    def __init__(self) -> None:
        self.puts = 0
        self.at_s = 0.0

    def put(self, value: torch.Tensor) -> None:
        self.puts += 1
        if self.puts == 2:  # the first put is the prompt
            self.at_s = time.perf_counter()

    def end(self) -> None:
        """Called after the last token."""


def transformers_rate(model: Any, prompt: list[int], tokens: int) -> float:
    """Decoded tokens per second of `generate`."""
    first = _FirstToken()
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            streamer=first,
        )
    elapsed_s = time.perf_counter() - first.at_s
    return float(made.shape[1] - len(prompt) - 1) / elapsed_s


def slim_rate(engine: Any, prompt: list[int], tokens: int) -> float:
    """Decoded tokens per second of slim."""
    engine.submit({"id": 0, "prompt": prompt, "max_tokens": tokens})
    while not engine.step():
        pass
    start_s, made = time.perf_counter(), 0
    while engine.busy():
        made += sum(len(output["tokens"]) for output in engine.step())
    return made / (time.perf_counter() - start_s)


def measure(folder: Path, rounds: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
    """Let both sides take turns; who goes first alternates."""
    engine = Engine(load_weights(str(folder)), {}, "bfloat16")
    model = transformers_model(folder)
    vocab = engine.model.config.vocab
    rates: dict[str, list[float]] = {"slim": [], "transformers": []}
    for turn in range(rounds + 1):
        generator = torch.Generator().manual_seed(turn)
        prompt = torch.randint(vocab // 2, vocab, (prompt_tokens,), generator=generator).tolist()
        sides = [
            ("slim", lambda p=prompt: slim_rate(engine, p, tokens)),
            ("transformers", lambda p=prompt: transformers_rate(model, p, tokens)),
        ]
        for name, side in sides if turn % 2 else reversed(sides):
            rate = side()
            if turn:  # the first turn warms both up
                rates[name].append(rate)
    ratios = [a / b for a, b in zip(rates["slim"], rates["transformers"], strict=True)]
    return {
        "slim_tok_s": round(statistics.median(rates["slim"]), 2),
        "transformers_tok_s": round(statistics.median(rates["transformers"]), 2),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_low": round(min(ratios), 3),
        "ratio_high": round(max(ratios), 3),
        "rounds": rounds,
        "prompt_tokens": prompt_tokens,
        "tokens": tokens,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Prepare the model if need be, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--home", type=Path, help="folder that caches models")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        prepared = prepare(options.model, options.home or Path(scratch))
        result = measure(prepared.folder, options.rounds, options.prompt_tokens, options.tokens)
    print(json.dumps({"model": options.model, **result}))


if __name__ == "__main__":
    main()
