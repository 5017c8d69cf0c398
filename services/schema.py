"""Documents of the contract for other languages: `python -m services.schema` writes both.

`docs/schemas.json` holds a JSON Schema for every message; `docs/asyncapi.json` is an AsyncAPI 3
document of the subjects they travel on. Both are made from `protos/` alone.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

import protos
from protos import codec, subjects

DOCS = Path(__file__).parent.parent / "docs"
REF = "schemas.json#/$defs/{name}"
VERSION = "1"
DESCRIPTION = (
    "Everything the rooms may say to one another, over NATS. Bodies are JSON of at most "
    f"{codec.MAX_BODY_BYTES // 1024} KiB; a larger part travels as the digest of a blob. "
    "The W3C trace context travels in the headers."
)

# Where each kind of message travels, in the grammar of protos/subjects.py; keys are optional.
_KINDS: dict[str, tuple[str, str]] = {
    "command": ("cmd.{{room}}.{tag}.{{key}}", "Durable work, addressed to a room."),
    "ask": ("ask.{{room}}.{tag}.{{key}}", "A request, answered within seconds."),
    "signal": ("sig.{{room}}.{tag}.{{id}}", "Lossy: whoever listens hears it once."),
    "event": ("evt.{{entity}}.{{id}}.{tag}", "The ledger: appended by compare-and-swap."),
}
_PARAMETERS = {
    "room": "A room: proposer, evaluator, engine_host, scheduler.",
    "key": "One member of the room, or the name of the work; may be left out, with its dot.",
    "id": "Whom or what it is about.",
    "entity": f"One of {', '.join(subjects.ENTITIES)}.",
}


def unions() -> dict[str, tuple[type[msgspec.Struct], ...]]:
    """The messages of each kind, from the contract's unions."""
    return {
        "command": get_args(protos.Command),
        "ask": get_args(protos.Ask),
        "answer": get_args(protos.Answer),
        "signal": get_args(protos.Signal),
        "event": get_args(protos.Event),
    }


def schemas() -> dict[str, Any]:
    """One JSON Schema (2020-12) with a definition for every struct of the contract."""
    messages = [message for kind in unions().values() for message in kind]
    _, definitions = msgspec.json.schema_components(messages, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Perpetune messages",
        "$defs": dict(sorted(definitions.items())),
    }


def asyncapi() -> dict[str, Any]:
    """An AsyncAPI 3 document: a channel for every message, and what may be done on it."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for kind, members in unions().items():
        for message in members:
            tag = subjects.message_name(message)
            messages[tag] = _message(message, kind)
            if kind in _KINDS:
                channels[tag] = _channel(kind, tag)
                operations[f"send_{tag}"] = {
                    "action": "send",
                    "channel": {"$ref": f"#/channels/{tag}"},
                    "messages": [{"$ref": f"#/channels/{tag}/messages/{tag}"}],
                }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Perpetune",
            "version": VERSION,
            "description": DESCRIPTION,
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _message(message: type[msgspec.Struct], kind: str) -> dict[str, Any]:
    return {
        "name": subjects.message_name(message),
        "title": message.__name__,
        "summary": " ".join((message.__doc__ or "").split()),
        "tags": [{"name": kind}],
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": REF.format(name=message.__name__)},
        },
    }


def _channel(kind: str, tag: str) -> dict[str, Any]:
    shape, description = _KINDS[kind]
    address = f"{subjects.PREFIX}.{shape.format(tag=tag)}"
    named = [name for name in _PARAMETERS if f"{{{name}}}" in address]
    return {
        "address": address,
        "description": description,
        "parameters": {name: {"description": _PARAMETERS[name]} for name in named},
        "messages": {tag: {"$ref": f"#/components/messages/{tag}"}},
    }


def documents() -> dict[str, str]:
    """File name to content, as they are checked in."""
    made = {"schemas.json": schemas(), "asyncapi.json": asyncapi()}
    return {name: json.dumps(content, indent=2) + "\n" for name, content in made.items()}


def stale(folder: Path = DOCS) -> list[str]:
    """The documents in a folder that differ from the contract."""
    found = []
    for name, content in documents().items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            found.append(name)
    return found


def write(folder: Path = DOCS) -> Iterable[Path]:
    """Write the documents and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in documents().items():
        (folder / name).write_text(content, encoding="utf-8")
        written.append(folder / name)
    return written


if __name__ == "__main__":
    for path in write():
        sys.stdout.write(f"wrote {path}\n")
