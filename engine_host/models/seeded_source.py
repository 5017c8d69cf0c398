"""Small models made from a seed: other shapes than the default one, for tests and trials."""

import hashlib
import json
import math
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .errors import ModelError
from .llama import SUPPORTED_ARCHITECTURE, tensor_shapes
from .source import BFloat16Bits, round_to_bfloat16

_VOCABULARY = 512
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_COMMON_PAIRS = "Ġ t|h e|i n|Ġ a|r e|o n|Ġt he|e r|n d|Ġ s|Ġ w|a t|o u|Ġ o|i s|e s|e d|Ġ c|l l|in g"
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_BASE: dict[str, Any] = {
    "architectures": [SUPPORTED_ARCHITECTURE],
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHAPES: dict[str, dict[str, Any]] = {
    # Untied; heads * head_dim differs from the hidden size; Llama 3's rope scaling.
    "small": {
        **_BASE,
        "hidden_size": 384,
        "intermediate_size": 960,
        "num_hidden_layers": 5,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 48,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        "tie_word_embeddings": False,
    },
    # Tied; as many key-value heads as heads; no scaling.
    "even": {
        **_BASE,
        "hidden_size": 256,
        "intermediate_size": 640,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
    },
}


class SeededSource:
    """A `Source` whose weights are drawn, by name of tensor, from a seed."""

    def __init__(self, shape: str, seed: int = 0) -> None:
        if shape not in SHAPES:
            raise ModelError(f"no seeded shape '{shape}' (there are: {', '.join(SHAPES)})")
        self._seed, self._config = seed, SHAPES[shape]
        self._shapes = tensor_shapes(self._config)

    def digest(self) -> str:
        """SHA-256 over the shape and the seed."""
        content = json.dumps([self._config, self._seed], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def config(self) -> dict[str, Any]:
        """Configuration of the named shape."""
        return self._config

    def tokenizer_json(self) -> str:
        """A byte-level BPE tokenizer with a few common merges."""
        return _tokenizer_json()

    def chat_template(self) -> str | None:
        """The usual im_start/im_end template."""
        return _TEMPLATE

    def has(self, name: str) -> bool:
        """Whether the shape has the tensor."""
        return name in self._shapes

    def tensor(self, name: str) -> BFloat16Bits:
        """Weights scaled so that logits are spread out and greedy tokens rarely near a tie."""
        shape = self._shapes[name]
        key = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        random = np.random.default_rng(np.frombuffer(key, dtype=np.uint32))
        values = random.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            return round_to_bfloat16(1.0 + 0.1 * values)
        gain = 3.0 if name in ("lm_head.weight", "model.embed_tokens.weight") else 1.0
        return round_to_bfloat16(values * np.float32(gain / math.sqrt(shape[1])))


def _tokenizer_json() -> str:
    merges = [(left, right) for left, right in (p.split(" ") for p in _COMMON_PAIRS.split("|"))]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*_SPECIAL, *letters, *("".join(pair) for pair in merges)]
    tokens += [f"<|reserved_{index}|>" for index in range(len(tokens), _VOCABULARY)]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token in tokens if token.startswith("<|")]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    return str(tokenizer.to_str())
