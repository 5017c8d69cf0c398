"""Models made ready for engines: `prepare("smollm2", home)` gives a folder of weights to map.

Needs numpy, gguf and tokenizers, but no torch. Control processes that must stay small run it as
`python -m engine_host.models prepare <model> --home <dir>`, which prints one JSON line.
"""

from .errors import ModelError
from .locate import ACCEPTED
from .prepared import PreparedModel, prepare, verify

__all__ = ["ACCEPTED", "ModelError", "PreparedModel", "prepare", "verify"]
