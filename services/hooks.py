"""How an actor declares what it handles."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

_MARK = "__perpetune_hooks__"


@dataclass(frozen=True)
class CommandHook:
    message: type[msgspec.Struct]


@dataclass(frozen=True)
class AskHook:
    message: type[msgspec.Struct]


@dataclass(frozen=True)
class SignalHook:
    message: type[msgspec.Struct]
    room: str
    id: str


@dataclass(frozen=True)
class EventHook:
    messages: tuple[type[msgspec.Struct], ...]


Hook = CommandHook | AskHook | SignalHook | EventHook


def on_command(message: type[msgspec.Struct]) -> Callable[[F], F]:
    """`async def handler(self, command, delivery)`. Run by the actor, `concurrency` at once.

    Returning acks it (commit what came of it first). TroubleError and Conflict: it comes again
    after a bounded delay. Another exception is a bug: logged, `gave_up` is called, dead letter.
    """
    return _marked(CommandHook(message))


def on_ask(message: type[msgspec.Struct]) -> Callable[[F], F]:
    """`async def handler(self, ask) -> reply`. Run in a task of its own for each request.

    Refused goes to the asker as AskRefused, TroubleError as AskTrouble; a bug is logged here and
    reaches the asker as AskTrouble without its text.
    """
    return _marked(AskHook(message))


def on_signal(message: type[msgspec.Struct], *, room: str = "*", id: str = "*") -> Callable[[F], F]:
    """`async def handler(self, signal: Signal)`. One after the other, each kind in its own task.

    An exception is logged and the signal dropped: signals are lossy anyway.
    """
    return _marked(SignalHook(message, room, id))


def on_event(*messages: type[msgspec.Struct]) -> Callable[[F], F]:
    """`async def handler(self, recorded: Recorded)`, for these events, or all when none is named.

    Run in the ledger's order, one after the other. TroubleError and Conflict: the same event again
    after a bounded delay. Any other exception ends the actor, since an event can't be passed over.
    """
    return _marked(EventHook(messages))


def hooks_of(actor: object) -> list[tuple[Hook, Callable[..., Awaitable[Any]]]]:
    """The declared hooks with their bound methods, in the order of their names."""
    found = []
    for name in dir(type(actor)):
        for hook in getattr(getattr(type(actor), name), _MARK, ()):
            found.append((hook, getattr(actor, name)))
    return found


def _marked(hook: Hook) -> Callable[[F], F]:
    def mark(method: F) -> F:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), hook))
        return method

    return mark
