"""The one place that builds and parses subjects.

    pt.v1.cmd.<room>.<message>[.<key>]   durable work
    pt.v1.ask.<room>.<message>[.<key>]   a request answered in seconds
    pt.v1.sig.<room>.<what>.<id>         lossy: heartbeats, progress
    pt.v1.evt.<entity>.<id>.<event>      the ledger
    pt.v1.dead.<room>                    what could not be handled, with its raw bytes
    pt.v1.stored.<entity>.<id>.<event>   a hint that the ledger grew

Tokens are checked at this edge, so that no dot, wildcard or blank from outside can widen a subject.
"""

import re
from dataclasses import dataclass

import msgspec

PREFIX = "pt.v1"
ENTITIES = ("campaign", "candidate", "trial", "engine", "release", "agent")
STORED_EVENTS = f"{PREFIX}.stored.>"
NOBODY = f"{PREFIX}.nobody"  # nobody ever listens here: an answer to it is the broker's own
ALL_COMMANDS = f"{PREFIX}.cmd.>"
ALL_EVENTS = f"{PREFIX}.evt.>"
ALL_DEAD = f"{PREFIX}.dead.>"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class SubjectError(ValueError):
    """A token or subject breaks the grammar; the message names the part and its value."""


@dataclass(frozen=True)
class CommandSubject:
    room: str
    message: str
    key: str | None


@dataclass(frozen=True)
class AskSubject:
    room: str
    message: str
    key: str | None


@dataclass(frozen=True)
class SignalSubject:
    room: str
    what: str
    id: str


@dataclass(frozen=True)
class EventSubject:
    entity: str
    id: str
    event: str


Subject = CommandSubject | AskSubject | SignalSubject | EventSubject


def message_name(message: msgspec.Struct | type[msgspec.Struct]) -> str:
    """The literal tag of a message, which is also its token in a subject."""
    tag = message.__struct_config__.tag
    if not isinstance(tag, str):
        kind = message if isinstance(message, type) else type(message)
        raise SubjectError(f"{kind.__name__} carries no literal tag, so it has no subject")
    return _token("message", tag)


def command(room: str, message: str, key: str | None = None) -> str:
    """The subject of a command for `room`; `key` addresses one member of it or names the work."""
    return _keyed("cmd", room, message, key)


def ask(room: str, message: str, key: str | None = None) -> str:
    """The subject of a request to `room`; `key` addresses one member of it."""
    return _keyed("ask", room, message, key)


def signal(room: str, what: str, id: str) -> str:
    return f"{PREFIX}.sig.{_token('room', room)}.{_token('what', what)}.{_token('id', id)}"


def event(entity: str, id: str, event: str) -> str:
    return f"{PREFIX}.evt.{_entity(entity)}.{_token('id', id)}.{_token('event', event)}"


def dead(room: str) -> str:
    return f"{PREFIX}.dead.{_token('room', room)}"


def commands_of(room: str, key: str | None = None) -> str:
    """The filter for all commands of a room, or only for those under one key."""
    if key is None:
        return f"{PREFIX}.cmd.{_token('room', room)}.>"
    return f"{PREFIX}.cmd.{_token('room', room)}.*.{_token('key', key)}"


def signals_of(room: str = "*", what: str = "*", id: str = "*") -> str:
    parts = (("room", room), ("what", what), ("id", id))
    return ".".join([PREFIX, "sig", *(v if v == "*" else _token(n, v) for n, v in parts)])


def events_of(entity: str | None = None, id: str | None = None) -> str:
    """The filter for the whole ledger, one kind of entity, or one entity."""
    if entity is None:
        if id is not None:
            raise SubjectError(f"id {id!r} was given without an entity")
        return ALL_EVENTS
    if id is None:
        return f"{PREFIX}.evt.{_entity(entity)}.>"
    return f"{PREFIX}.evt.{_entity(entity)}.{_token('id', id)}.>"


def matches(subject: str, pattern: str) -> bool:
    """Whether a subject falls under a filter (`*` is one token, a last `>` is the rest)."""
    have, want = subject.split("."), pattern.split(".")
    if want[-1] == ">":
        if len(have) < len(want):
            return False
        have, want = have[: len(want) - 1], want[:-1]
    return len(have) == len(want) and all(w in ("*", h) for h, w in zip(have, want, strict=True))


def parse(subject: str) -> Subject:
    """Take a subject apart. Raises SubjectError when it isn't one of ours."""
    if not subject.startswith(PREFIX + "."):
        raise SubjectError(f"subject {subject!r} doesn't start with {PREFIX}")
    kind, *tokens = subject[len(PREFIX) + 1 :].split(".")
    for token in tokens:
        _token("token", token)
    match kind, tokens:
        case "cmd", [room, message, *key] if len(key) <= 1:
            return CommandSubject(room, message, key[0] if key else None)
        case "ask", [room, message, *key] if len(key) <= 1:
            return AskSubject(room, message, key[0] if key else None)
        case "sig", [room, what, id]:
            return SignalSubject(room, what, id)
        case "evt", [entity, id, event]:
            return EventSubject(_entity(entity), id, event)
    raise SubjectError(f"subject {subject!r} has no shape of {PREFIX}")


def _keyed(kind: str, room: str, message: str, key: str | None) -> str:
    base = f"{PREFIX}.{kind}.{_token('room', room)}.{_token('message', message)}"
    return base if key is None else f"{base}.{_token('key', key)}"


def _entity(value: str) -> str:
    if value not in ENTITIES:
        raise SubjectError(f"entity {value!r} is none of {', '.join(ENTITIES)}")
    return value


def _token(part: str, value: str) -> str:
    if not _TOKEN.fullmatch(value):
        raise SubjectError(f"{part} {value!r} must be 1 to 128 of A-Z a-z 0-9 _ -")
    return value
