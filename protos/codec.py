"""Structs to JSON bytes and back, the same for every transport.

Non-finite numbers are refused before anything is written: JSON has no word for them, and the
encoder would turn them into null, which reads as "not measured".
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

MAX_BODY_BYTES = 256 * 1024

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()


class CodecError(ValueError):
    """A body can't be written or read."""


class NonFiniteError(CodecError):
    """A message holds NaN or an infinity; the message names the field."""


class TooLargeError(CodecError):
    """A body is over the limit; it must travel as a blob digest."""

    def __init__(self, name: str, size_bytes: int) -> None:
        super().__init__(
            f"{name} is {size_bytes} bytes, over the {MAX_BODY_BYTES} a message may have: "
            "put the large part in a blob and send its digest"
        )
        self.size_bytes = size_bytes


class UndecodableError(CodecError):
    """Bytes that are no message of the accepted types."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The answer to a request that could not be served. Sent by the room that was asked.

    `kind` is `refused` (the asker is at fault), `trouble` (try again) or `bug`.
    """

    kind: str
    reason: str


def encode(message: msgspec.Struct) -> bytes:
    """JSON bytes of a message. Raises NonFiniteError or TooLargeError."""
    name = type(message).__name__
    _refuse_non_finite(message, name)
    body = _ENCODER.encode(message)
    if len(body) > MAX_BODY_BYTES:
        raise TooLargeError(name, len(body))
    return body


def decode(raw: bytes, accepts: type[T]) -> T:
    """A message of one of the accepted types (a struct or a union). Raises UndecodableError."""
    try:
        return cast(T, _decoder(cast(Any, accepts)).decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise UndecodableError(f"{error} (body starts {bytes(raw[:80])!r})") from error


@lru_cache(maxsize=256)
def _decoder(accepts: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(accepts)


def _refuse_non_finite(value: object, where: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NonFiniteError(f"{where} is {value}; leave out what was not measured")
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            _refuse_non_finite(getattr(value, field), f"{where}.{field}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_non_finite(item, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{where}[{index}]")
