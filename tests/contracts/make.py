"""Makes one golden JSON file for each message: `python tests/contracts/make.py`.

Values are made from the types, none of them a default, so that a renamed field or a changed tag is
seen. Existing files are never rewritten: they are what older versions put on the wire.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect as shape

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "v1"


def unions() -> dict[str, Any]:
    """Name to union of everything that travels."""
    import protos

    return {name: getattr(protos, name) for name in protos.__all__}


# Fields whose values are checked when they are made.
_VALID = {
    ("objective", "metric"): "tpot_ms_p50",
    ("objective", "output_class"): "quality",
    ("objective", "min_effect"): 0.25,
    ("limit", "metric"): "ttft_ms_p99",
}


def example(kind: shape.Type, where: tuple[str, str] = ("", "")) -> Any:
    """A plain-data example of a type."""
    if where in _VALID:
        return _VALID[where]
    if isinstance(kind, shape.StructType):
        tag = str(kind.tag)
        return {"type": tag, **{f.encode_name: example(f.type, (tag, f.name)) for f in kind.fields}}
    if isinstance(kind, shape.UnionType):
        return example(next(t for t in kind.types if not isinstance(t, shape.NoneType)), where)
    if isinstance(kind, shape.VarTupleType | shape.ListType):
        return [example(kind.item_type)]
    if isinstance(kind, shape.DictType):
        return {"key": example(kind.value_type)}
    if isinstance(kind, shape.LiteralType):
        return kind.values[-1]
    plain: dict[type, Any] = {
        shape.StrType: where[1] or "text",
        shape.IntType: 7,
        shape.FloatType: 2.5,
        shape.BoolType: True,
    }
    return plain[type(kind)]


def main() -> None:
    """Write the files that are missing."""
    sys.path.insert(0, str(ROOT))
    GOLDEN.mkdir(exist_ok=True)
    for union in unions().values():
        for struct in get_args(union):
            path = GOLDEN / f"{struct.__struct_config__.tag}.json"
            if not path.exists():
                data = example(shape.type_info(struct))
                path.write_bytes(msgspec.json.format(msgspec.json.encode(data)) + b"\n")


if __name__ == "__main__":
    main()
