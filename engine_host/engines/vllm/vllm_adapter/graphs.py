"""Which functions compiled graphs hold: replacing their bodies in place would change nothing."""

from types import CodeType
from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslatorBase

_held: set[CodeType] = set()


def watch() -> None:
    """Note every function that is traced from now on."""
    original = InstructionTranslatorBase.__init__

    def noting(self: Any, *arguments: Any, **more: Any) -> None:
        code = more.get("f_code")
        if isinstance(code, CodeType):
            _held.add(code)
        original(self, *arguments, **more)

    setattr(InstructionTranslatorBase, "__init__", noting)  # noqa: B010 (mypy holds methods fixed)


def held() -> list[tuple[str, str]]:
    """File and qualified name of each function that was traced into a graph."""
    return sorted({(code.co_filename, code.co_qualname) for code in _held})
