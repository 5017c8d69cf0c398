"""Tables of rotary position embedding."""

import math
from typing import Any

import torch

from .weights import Config


def rotary_tables(
    config: Config, positions: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each [positions, head_dim], for Hugging Face's two-halves layout."""
    frequencies = _frequencies(config).to(device)
    at = torch.arange(positions, dtype=torch.float32, device=device)
    angles = torch.outer(at, frequencies).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _frequencies(config: Config) -> torch.Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies: torch.Tensor = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling["rope_type"] == "factors":
        return frequencies / torch.tensor(scaling["factors"], dtype=torch.float32)
    return _llama3(frequencies, scaling)


def _llama3(frequencies: torch.Tensor, scaling: dict[str, Any]) -> torch.Tensor:
    """Llama 3.1's rule: slow waves are stretched, fast ones kept, those between are blended."""
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * frequencies / (2 * math.pi)
    kept_share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    stretched = frequencies / float(scaling["factor"])
    return (1.0 - kept_share) * stretched + kept_share * frequencies
