"""What vLLM reads from the environment: set here, before it is first imported."""

import os
import tempfile
from pathlib import Path

from . import COMPILED

_VALUES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine core runs in this process, where it forks
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_PLUGINS": "",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its workers would be threads and processes of a fork
    "TORCHINDUCTOR_VEC_ISA_OK": "1",  # see graphs.watch
    "USER": "engine",  # there is no user data base to ask
}


def prepare() -> None:
    """Fill the environment in; what is written goes to the scratch folder."""
    os.environ.update(_VALUES)
    scratch = Path(tempfile.gettempdir())
    os.environ["VLLM_CACHE_ROOT"] = str(scratch / COMPILED)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
