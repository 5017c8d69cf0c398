"""What older versions put on the wire still decodes, and keeps every field it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import protos

GOLDEN = Path(__file__).parent / "v1"
UNIONS = [getattr(protos, name) for name in protos.__all__]
STRUCTS = {s.__struct_config__.tag: (u, s) for u in UNIONS for s in get_args(u)}


def keeps(new: Any, old: Any) -> bool:
    """Everything in `old` stands in `new` with the same value; `new` may have more fields."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(k in new and keeps(new[k], v) for k, v in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(keeps, new, old))
    return bool(new == old)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda p: p.stem)
def test_golden_bytes_decode_and_lose_nothing(path: Path) -> None:
    union, struct = STRUCTS[path.stem]
    old = path.read_bytes()
    message = msgspec.json.decode(old, type=union)
    assert type(message) is struct
    assert keeps(msgspec.json.decode(msgspec.json.encode(message)), msgspec.json.decode(old))


def test_every_message_has_golden_bytes() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(STRUCTS)


def test_tags_are_the_snake_case_of_the_class_name() -> None:
    for tag, (_, struct) in STRUCTS.items():
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in struct.__name__).strip("_")
        assert tag == snake
