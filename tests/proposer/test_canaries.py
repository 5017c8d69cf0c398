"""Canaries of the real slim tree: each its own, of a known kind, the same after a restart."""

import ast
from functools import partial

from proposer.strategies.canaries import Canaries
from proposer.strategies.proposing import candidate_id
from protos.canary import KIND_OF_TURN, kind_of
from protos.target import Target, Workload


def drawn(context, count):
    strategy, known, found = Canaries(), set(), []
    for _ in range(count):
        proposal = strategy.propose(context(known=frozenset(known)))
        known.add(candidate_id(context(), proposal, "canary"))
        found.append(proposal)
    return found, known


def test_kinds_come_in_their_turn_and_no_two_are_alike(context):
    found, known = drawn(context, 24)
    assert [kind_of(p.label) for p in found] == list(KIND_OF_TURN) * 3
    assert len(known) == 24


def test_every_file_parses_and_every_kind_runs_in_the_serving_loop(context):
    for proposal in drawn(context, 16)[0]:
        assert "_unused = " in proposal.files["slim/scheduler.py"]
        for path, text in proposal.files.items():
            if path.endswith(".py"):
                ast.parse(text)


def test_cheats_and_gains_alternate(context):
    labels = [p.label.partition(": ")[2] for p in drawn(context, 16)[0]]
    assert {labels[1], labels[5]} == {"one token fewer", "always the same token"}
    assert {labels[3], labels[11]} == {"grid4-weights", "fused-layers"}


def test_a_restart_repeats_none(context):
    _, known = drawn(context, 5)
    again = Canaries().propose(context(known=frozenset(known)))
    assert candidate_id(context(), again, "canary") not in known


def test_where_no_gain_is_known_there_are_nulls_and_cheats_only(context):
    found, _ = drawn(partial(context, workload=Workload("chat")), 8)
    assert {kind_of(p.label) for p in found} == {"null", "cheat"}


def test_an_engine_without_any_gets_none(context):
    assert Canaries().propose(context(target=Target("fake", "anything"))) is None
