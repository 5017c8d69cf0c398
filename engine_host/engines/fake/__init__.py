"""fake: an engine without arithmetic, for tests of everything around engines.

Tokens are hashes of the weights and the text so far; the cost of a step is hashing, set by a knob.
"""

from .engine import Engine
from .space import SPACE
from .weights import load_weights

__all__ = ["SPACE", "Engine", "load_weights"]
