"""Which functions compiled graphs hold: replacing their bodies in place would change nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._inductor import codecache
from torch._inductor.cpu_vec_isa import VecISA
from vllm.compilation import decorators

_traced: set[CodeType] = set()
Place = tuple[str, str]  # file and qualified name


def watch() -> None:
    """Note every function that is traced from now on."""
    original = InstructionTranslatorBase.__init__

    def noting(self: Any, *arguments: Any, **more: Any) -> None:
        code = more.get("f_code")
        if isinstance(code, CodeType):
            _traced.add(code)
        original(self, *arguments, **more)

    setattr(InstructionTranslatorBase, "__init__", noting)  # noqa: B010 (mypy holds methods fixed)
    # vLLM asks a graph from its cache to finish loading; one of torch's own is whole, and doesn't
    # know the question: vLLM would trace again what it has just read.
    whole: Any = BundledAOTAutogradSerializableCallable
    if not hasattr(whole, "finalize_loading"):
        whole.finalize_loading = lambda *_: None
    # What the processor says of its vector extensions is enough. Trying one takes a compilation and
    # another interpreter, which a confined engine doesn't see.
    setattr(VecISA, "check_build", lambda *_: True)  # noqa: B010


class NotKept(Exception):
    """A graph would have to be compiled."""


@contextmanager
def only_kept() -> Iterator[None]:
    """Meanwhile graphs come from vLLM's cache; one that isn't there raises NotKept.

    Nothing is compiled then, so no headers are prepared for it, which takes seconds.
    """
    load = decorators._try_load_aot_compiled_fn
    prepare_header = codecache._precompile_header

    def loading(*arguments: Any) -> Any:
        found = load(*arguments)
        if found is None:
            raise NotKept
        return found

    setattr(decorators, "_try_load_aot_compiled_fn", loading)  # noqa: B010
    setattr(codecache, "_precompile_header", lambda header, *_, **__: header)  # noqa: B010
    try:
        yield
    finally:
        setattr(decorators, "_try_load_aot_compiled_fn", load)  # noqa: B010
        setattr(codecache, "_precompile_header", prepare_header)  # noqa: B010


def traced() -> set[Place]:
    """Functions that were traced into graphs in this process."""
    return {(code.co_filename, code.co_qualname) for code in _traced}


def loaded(model: Any) -> set[Place]:
    """Functions in the graphs of a model that were compiled by an earlier process."""
    found: set[Place] = set()
    for part in model.modules():
        graph = getattr(part, "aot_compiled_fn", None)
        if graph is not None:
            for source in graph.source_info().inlined_sources:
                found |= set(_functions_at(source.module, source.firstlineno))
    return found


def _functions_at(module: str, line: int) -> Iterator[Place]:
    """Functions that begin on a line of a module that is imported."""
    spec = sys.modules[module].__spec__
    loader: Any = spec and spec.loader
    code = loader.get_code(module) if loader else None
    for inner in _inside(code) if code else ():
        if inner.co_firstlineno == line:
            yield inner.co_filename, inner.co_qualname


def _inside(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)
