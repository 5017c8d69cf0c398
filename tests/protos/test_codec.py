"""Bodies are JSON that any language can read, or they are refused before they leave."""

import json
import math

import msgspec
import pytest

from protos import codec


class Reading(msgspec.Struct, frozen=True, tag="reading"):
    value: float | None = None
    series: tuple[float, ...] = ()
    by_name: dict[str, float] = {}


class Nested(msgspec.Struct, frozen=True, tag="nested"):
    inner: Reading


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


def test_a_message_comes_back_as_it_went():
    reading = Reading(1.5, (1.0, 2.0), {"a": 3.0})
    assert codec.decode(codec.encode(reading), Reading | Nested) == reading


def test_a_body_is_plain_json_with_the_tag():
    assert json.loads(codec.encode(Text("x"))) == {"type": "text", "text": "x"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda bad: Reading(bad), "Reading.value"),
        (lambda bad: Reading(series=(0.0, bad)), r"Reading.series\[1\]"),
        (lambda bad: Reading(by_name={"a": bad}), r"Reading.by_name\['a'\]"),
        (lambda bad: Nested(Reading(bad)), "Nested.inner.value"),
    ],
)
def test_a_number_json_has_no_word_for_is_refused_with_its_place(bad, make, where):
    with pytest.raises(codec.NonFiniteError, match=where):
        codec.encode(make(bad))


def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not():
    frame = len(codec.encode(Text("")))
    assert len(codec.encode(Text("x" * (codec.MAX_BODY_BYTES - frame)))) == codec.MAX_BODY_BYTES
    with pytest.raises(codec.TooLargeError, match="blob") as caught:
        codec.encode(Text("x" * (codec.MAX_BODY_BYTES - frame + 1)))
    assert caught.value.size_bytes == codec.MAX_BODY_BYTES + 1


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff\xfe", b"[]", b'{"type":"other"}', b'{"type":"text","text":1}']
)
def test_what_is_no_accepted_message_is_refused_with_its_first_bytes(raw):
    with pytest.raises(codec.UndecodableError, match="body starts"):
        codec.decode(raw, Text | Reading)


def test_an_unknown_field_is_passed_over_so_that_messages_can_grow():
    assert codec.decode(b'{"type":"text","text":"x","later":1}', Text) == Text("x")
