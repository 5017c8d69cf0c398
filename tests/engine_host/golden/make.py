"""Make the golden tokens again: `python tests/engine_host/golden/make.py` (needs transformers).

For each model: 20 prompts, and the 64 tokens that transformers' greedy `generate` in float32 gives
for each. `smallest_gap` is the least distance between the two largest logits on the way: how far
the nearest tie was.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from engine_host.models import prepare  # noqa: E402

MODELS = {"smollm2": "smollm2", "seed:small": "seed-small", "seed:even": "seed-even"}
NEW_TOKENS = 64
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics state that",
    "Water boils at a lower temperature on a mountain because",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n\nI am writing to you about",
    "import json\n\ndef read_settings(path):\n    with open(path) as file:\n",
    "SELECT name, price FROM products WHERE",
    "The old clockmaker wound the great clock every evening, and every evening he thought that",
    "To make bread you need flour, water, salt and yeast. First,",
    "Q: Why is the sky blue?\nA:",
    "<|im_start|>user\nName three rivers of Europe.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nAnswer briefly.<|im_end|>\n<|im_start|>user\nWhat is a prime number?"
    "<|im_end|>\n<|im_start|>assistant\n",
    "Il était une fois une petite fille qui",
    "| city | country |\n| --- | --- |\n| Oslo | Norway |\n|",
    "Ω",
    "The train left at nine. " * 12 + "The passengers",
    "A list of things to pack: a tent, a lamp, a map, some rope, a kettle and a warm coat. " * 8
    + "Then",
    "for (int i = 0; i < n; ++i) {\n    total += values[i] * weights[i];\n}\n" * 24 + "// So",
)


def reference_model(folder: Path) -> LlamaForCausalLM:
    """transformers' model of a prepared folder, in float32, that never stops early."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    absent = ("architectures", "model_type", "dtype", "bos_token_id", "eos_token_id")
    config = LlamaConfig(
        **{key: value for key, value in raw.items() if key not in absent},
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).float().eval()
    content = bytearray((folder / "weights.bin").read_bytes())
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))["tensors"]
    tensors = {}
    for name, entry in index.items():
        count, offset = math.prod(entry["shape"]), entry["offset"]
        flat = torch.frombuffer(content, dtype=torch.bfloat16, count=count, offset=offset)
        tensors[name] = flat.view(entry["shape"]).float()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    expected_missing = ["lm_head.weight"] if raw["tie_word_embeddings"] else []
    if missing != expected_missing or unexpected:
        raise SystemExit(f"{folder}: tensors missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def golden(model: LlamaForCausalLM, prompt: list[int]) -> dict[str, Any]:
    """Greedy tokens after one prompt."""
    with torch.inference_mode():
        made = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    best_two = torch.stack(made.logits)[:, 0].topk(2, dim=-1).values
    return {
        "prompt": prompt,
        "tokens": made.sequences[0, len(prompt) :].tolist(),
        "smallest_gap": round(float((best_two[:, 0] - best_two[:, 1]).min()), 6),
    }


def main() -> None:
    """Write one JSON file for each model beside this script."""
    with tempfile.TemporaryDirectory() as home:
        for name, file_stem in MODELS.items():
            prepared = prepare(name, Path(home))
            tokenizer = Tokenizer.from_file(str(prepared.folder / "tokenizer.json"))
            model = reference_model(prepared.folder)
            prompts = [tokenizer.encode(text).ids for text in TEXTS]
            cases = [golden(model, prompt) for prompt in prompts]
            lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
            text = f'{{"model":"{name}","digest":"{prepared.digest}","cases":[\n{lines}\n]}}\n'
            (Path(__file__).parent / f"{file_stem}.json").write_text(text, encoding="utf-8")
            print(name, [len(p) for p in prompts], min(case["smallest_gap"] for case in cases))


if __name__ == "__main__":
    main()
