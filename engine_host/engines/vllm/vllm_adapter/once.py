"""What vLLM does anew for each engine of a process, though once is enough: done here, at import.

And the memory of its cache, which it fills with zeros one by one: the system gives zeroed pages
when they are first used, so that neither a start nor a fork pays for all of them.
"""

import mmap
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.v1.worker import utils
from vllm.v1.worker.cpu_worker import CPUWorker

_zeros = torch.zeros


def install() -> None:
    """Take both over. Kernels are looked for in every module that is imported by now."""
    current_platform.register_triton_kernel_overrides()
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)
    utils.torch = _TorchOfCaches()
    # The engine rehearses once it is built; the cache has its size already.
    setattr(CPUWorker, "_should_warm_up_model", lambda _: False)  # noqa: B010


class _TorchOfCaches:
    """torch, to the module that allocates caches."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def zeros(self, *shape: Any, **more: Any) -> torch.Tensor:
        plain = len(shape) == 1 and isinstance(shape[0], int) and shape[0] > 0
        if not plain or more.get("dtype") is not torch.int8 or str(more.get("device")) != "cpu":
            return _zeros(*shape, **more)
        return torch.frombuffer(mmap.mmap(-1, shape[0], mmap.MAP_PRIVATE), dtype=torch.int8)
