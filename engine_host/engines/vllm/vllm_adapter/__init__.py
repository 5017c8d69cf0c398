"""vLLM behind the engine protocol: its own engine, in this process, around mapped weights.

`SPACE` can be read without vLLM; `Engine` and `load_weights` import it when first asked for.
"""

from typing import Any

from .space import SPACE

__all__ = ["COMPILED", "SPACE", "Engine", "load_weights"]

COMPILED = "vllm"  # vLLM's cache of compiled code, in the scratch folder


def __getattr__(name: str) -> Any:
    # Imported here so that who only wants to read SPACE does not load torch.
    if name == "Engine":
        from .engine import Engine

        return Engine
    if name == "load_weights":
        from .weights import load_weights

        return load_weights
    raise AttributeError(name)
