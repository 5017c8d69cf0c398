"""Everything that building an engine imports, so that a fork that builds one finds it done."""

from . import environment

environment.prepare()

import importlib  # noqa: E402 (vLLM reads the environment when it is first imported)

import torch  # noqa: E402

SET_NUM_THREADS = torch.set_num_threads  # vLLM's CPU worker replaces it with one that does nothing

from vllm.platforms import current_platform  # noqa: E402

from . import graphs, loader, once, solitary  # noqa: E402

__all__ = ["SET_NUM_THREADS", "loader"]

_LAZY = (
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors",
    "vllm.model_executor.layers.quantization.online.base",
    "vllm.model_executor.models.llama",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.engine.core",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
)
current_platform.import_kernels()
for _name in _LAZY:
    importlib.import_module(_name)
graphs.watch()
solitary.install()
once.install()
