"""A process group of one that needs no socket: a confined engine has no network to open one on.

vLLM asks for gloo groups even where it is alone; with one rank it never sends anything.
"""

from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

_init_process_group, _new_group = dist.init_process_group, dist.new_group


def install() -> None:
    """Make groups of one rank out of nothing; larger ones are left to vLLM."""
    dist.init_process_group = _init
    dist.new_group = _new


def _init(*arguments: Any, **more: Any) -> None:
    if more.get("world_size") != 1:
        _init_process_group(*arguments, **more)
        return
    _init_process_group(backend="fake", store=FakeStore(), rank=0, world_size=1)


def _new(*arguments: Any, **more: Any) -> Any:
    if dist.get_world_size() == 1:
        more["backend"] = "fake"
    return _new_group(*arguments, **more)
