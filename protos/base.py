"""The base of every struct on the wire: frozen, tagged, and free of NaN and infinities."""

from __future__ import annotations

import math

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=False):
    """Base struct. Every subclass is frozen and carries a literal tag.

    msgspec writes NaN and infinities as null, so an optional float would quietly become "not
    measured": they are refused here, at construction and at decoding alike.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _refuse_non_finite(name, getattr(self, name))


def _refuse_non_finite(name: str, value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")
    if isinstance(value, (tuple, list)):
        for item in value:
            _refuse_non_finite(name, item)
    elif isinstance(value, dict):
        for item in value.values():
            _refuse_non_finite(name, item)
