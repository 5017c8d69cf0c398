"""Subjects are built and taken apart in one place, and nothing from outside can widen one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import subjects
from protos.messages import RunTrial

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True)


@given(TOKENS, TOKENS, st.none() | TOKENS)
def test_a_command_subject_is_taken_apart_as_it_was_built(room, message, key):
    built = subjects.command(room, message, key)
    assert subjects.parse(built) == subjects.CommandSubject(room, message, key)
    assert subjects.matches(built, subjects.commands_of(room))


@given(TOKENS, TOKENS, st.none() | TOKENS)
def test_an_ask_subject_is_taken_apart_as_it_was_built(room, message, key):
    assert subjects.parse(subjects.ask(room, message, key)) == subjects.AskSubject(
        room, message, key
    )


@given(TOKENS, TOKENS, TOKENS)
def test_a_signal_subject_is_taken_apart_as_it_was_built(room, what, id):
    built = subjects.signal(room, what, id)
    assert subjects.parse(built) == subjects.SignalSubject(room, what, id)
    assert subjects.matches(built, subjects.signals_of(what=what))


@given(st.sampled_from(subjects.ENTITIES), TOKENS, TOKENS)
def test_an_event_subject_is_taken_apart_as_it_was_built(entity, id, event):
    built = subjects.event(entity, id, event)
    assert subjects.parse(built) == subjects.EventSubject(entity, id, event)
    assert subjects.matches(built, subjects.events_of(entity, id))
    assert not subjects.matches(built, subjects.events_of(entity, id + "x"))


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_refused_by_name(text):
    try:
        subjects.parse(text)
    except subjects.SubjectError:
        return
    assert text.startswith("pt.v1.")


@pytest.mark.parametrize("bad", ["", "a.b", "*", ">", "a b", "a\n", "é", "x" * 129])
def test_a_bad_token_is_refused_with_its_part_and_value(bad):
    with pytest.raises(subjects.SubjectError, match="id "):
        subjects.signal("scheduler", "activity", bad)


def test_an_unknown_entity_is_refused():
    with pytest.raises(subjects.SubjectError, match="entity 'cat'"):
        subjects.event("cat", "c1", "meowed")


@pytest.mark.parametrize(
    "other", ["pt.v1.cmd.a", "pt.v1.evt.trial.t1", "pt.v1.sig.a.b", "pt.v2.cmd.a.b", "pt.v1.x.a.b"]
)
def test_what_has_no_shape_of_ours_is_refused(other):
    with pytest.raises(subjects.SubjectError):
        subjects.parse(other)


def test_a_message_is_named_by_its_literal_tag():
    class Untagged(msgspec.Struct):
        x: int

    assert subjects.message_name(RunTrial) == "run_trial"
    with pytest.raises(subjects.SubjectError, match="Untagged carries no literal tag"):
        subjects.message_name(Untagged)


@pytest.mark.parametrize(
    ("subject", "pattern", "holds"),
    [
        ("a.b.c", "a.b.c", True),
        ("a.b.c", "a.*.c", True),
        ("a.b.c", "a.>", True),
        ("a.b.c", "a.b", False),
        ("a.b", "a.b.>", False),
        ("a.b", "a.b.c", False),
        ("a.b.c", "*.*", False),
    ],
)
def test_filters_match_as_the_brokers_do(subject, pattern, holds):
    assert subjects.matches(subject, pattern) is holds
