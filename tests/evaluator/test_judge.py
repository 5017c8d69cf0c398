"""The judge on made-up trials: planted gains and losses, and everything that must not pass."""

import random
from pathlib import Path

import msgspec
import pytest

from evaluator.judge import EvidenceError, judge
from evaluator.quality_set import quality_items
from evaluator.seeds import commitment_of
from protos.target import Limit, Objective
from protos.trial import BlockSample, Evidence, Grade, Plan, Quality, Script, StopRule, Verdict
from tests.evaluator.made_trials import MadeHost, make_lease, make_script_for

DIGEST = "e" * 64


def run(host: MadeHost, **changes: object) -> Verdict:
    lease = make_lease(**changes)
    script = make_script_for(lease)
    return judge(host.run(lease, script), script, DIGEST, script)


def test_a_planted_gain_is_faster_with_an_interval_around_the_truth() -> None:
    verdict = run(MadeHost(effect=0.4))
    assert verdict.word == "faster"
    assert verdict.interval is not None
    assert verdict.interval.low is not None
    assert verdict.interval.low < 1.4918 < (verdict.interval.high or 99.0)
    assert verdict.output_class == "equivalent"
    assert verdict.alpha_spent == 0.05
    assert verdict.metrics_b["output_tok_s"] > 1.3 * verdict.metrics_a["output_tok_s"]


def test_a_planted_loss_is_slower() -> None:
    assert run(MadeHost(effect=-0.2)).word == "slower"


def test_a_metric_that_shall_fall_counts_a_fall_as_better() -> None:
    verdict = run(MadeHost(effect=0.3), objective=Objective("tpot_ms_p50"))
    assert verdict.word == "faster"
    assert verdict.interval is not None
    assert verdict.interval.estimate > 1.2


def test_planted_nulls_are_almost_never_called_faster_or_slower() -> None:
    words = [run(MadeHost(effect=0.0, seed=seed)).word for seed in range(200)]
    assert words.count("faster") <= 10
    assert words.count("slower") <= 10
    assert words.count("no_gain") >= 100


def test_an_engine_that_failed_is_invalid_and_says_its_own_error() -> None:
    changes = {"failure": "start", "detail": "NameError: name 'x' is not defined", "blocks": ()}
    verdict = run(MadeHost(changes=changes))
    assert verdict.word == "invalid"
    assert "NameError" in verdict.reason


def test_an_engine_that_failed_before_the_script_was_revealed_is_invalid_too() -> None:
    lease = make_lease()
    script = make_script_for(lease)
    changes = {"failure": "prepare", "detail": "timed out", "script": None, "blocks": ()}
    verdict = judge(MadeHost(changes=changes).run(lease, script), None, DIGEST, None)
    assert verdict.word == "invalid"


def test_fewer_tokens_than_asked_for_are_incorrect() -> None:
    verdict = spoil(lambda s: {"tokens": s.tokens[:-1], "token_ns": s.token_ns[:-1]})
    assert verdict.word == "incorrect"
    assert "tokens of" in verdict.reason


def test_a_request_that_failed_counts_against_the_candidate() -> None:
    verdict = spoil(lambda s: {"error": "RuntimeError: shape", "tokens": (), "token_ns": ()})
    assert verdict.word == "incorrect"
    assert "RuntimeError" in verdict.reason


@pytest.mark.parametrize("void", [None, "the machine was taken away"])
def test_a_request_that_was_never_answered_counts_against_the_candidate(void: str | None) -> None:
    """Noise spoils times; it makes no request go unanswered."""
    lease = make_lease()
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    at = next(i for i, block in enumerate(evidence.blocks) if block.side == "B")
    unanswered = msgspec.structs.replace(evidence.blocks[at], requests=(), void=void)
    blocks = (*evidence.blocks[:at], unanswered, *evidence.blocks[at + 1 :])
    evidence = msgspec.structs.replace(evidence, blocks=blocks)
    verdict = judge(evidence, script, DIGEST, script)
    assert verdict.word == "incorrect"
    assert "never answered" in verdict.reason


def test_a_host_may_stop_at_the_first_wrong_output() -> None:
    lease = make_lease()
    script = make_script_for(lease)
    number = next(i for i, pair in enumerate(script.pairs) if pair.first == "B")
    evidence = MadeHost(effect=0.0, seed=1).run(
        make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=24))), script
    )
    alone = msgspec.structs.replace(evidence.blocks[2 * number], requests=())
    kept = msgspec.structs.replace(
        evidence, lease=lease, blocks=(*evidence.blocks[: 2 * number], alone)
    )
    assert judge(kept, script, DIGEST, script).word == "incorrect"
    whole = msgspec.structs.replace(kept, blocks=evidence.blocks[: 2 * number + 1])
    with pytest.raises(EvidenceError, match="only side B"):
        judge(whole, script, DIGEST, script)


def ended_early(gap: float, **plan: object) -> Verdict:
    """A trial whose host stopped after two pairs over an output `gap` logits off."""
    lease = make_lease(plan=Plan(tier="fast", rule=StopRule(), **plan))  # type: ignore[arg-type]
    script = make_script_for(lease)
    whole = MadeHost(gap=gap).run(lease, script)
    early = msgspec.structs.replace(whole, blocks=whole.blocks[:4], hopeless=True)
    return judge(early, script, DIGEST, script)


def test_timing_may_end_early_over_an_output_that_is_far_off() -> None:
    verdict = ended_early(3.0, hopeless_gap=2.0)
    assert verdict.word == "incorrect"
    assert "3.00 logits" in verdict.reason


@pytest.mark.parametrize(("gap", "plan"), [(1.9, {"hopeless_gap": 2.0}), (3.0, {})])
def test_timing_that_ended_early_without_the_plans_reason_is_no_evidence(
    gap: float, plan: dict[str, float]
) -> None:
    with pytest.raises(EvidenceError, match="ended early"):
        ended_early(gap, **plan)


def test_a_missing_output_on_side_a_is_no_verdict() -> None:
    with pytest.raises(EvidenceError, match="side A"):
        spoil(lambda s: {"tokens": s.tokens[:-1], "token_ns": s.token_ns[:-1]}, side="A")


def test_wrong_tokens_are_incorrect_by_the_reference() -> None:
    verdict = run(MadeHost(effect=0.4, gap=14.0))
    assert verdict.word == "incorrect"
    assert "not the model's" in verdict.reason


def test_one_and_the_same_token_everywhere_is_incorrect() -> None:
    lease = make_lease()
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    blocks = tuple(
        msgspec.structs.replace(
            block,
            requests=tuple(
                msgspec.structs.replace(r, tokens=(5,) * len(r.tokens)) for r in block.requests
            ),
        )
        if block.side == "B"
        else block
        for block in evidence.blocks
    )
    evidence = msgspec.structs.replace(evidence, blocks=blocks)
    assert judge(evidence, script, DIGEST, script).word == "incorrect"


def test_the_same_tokens_everywhere_are_bitwise() -> None:
    assert run(MadeHost(effect=0.4, differs=False)).output_class == "bitwise"


def test_one_flipped_near_tie_among_many_outputs_is_within_the_noise_floor() -> None:
    """Outputs that differ are graded first; their mean must not be taken for the mean of all."""
    verdict = run(MadeHost(effect=0.4, gap=0.45))
    assert (verdict.word, verdict.output_class) == ("faster", "equivalent")


def test_a_grade_that_hides_a_difference_is_no_evidence() -> None:
    lease = make_lease()
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    hidden = tuple(msgspec.structs.replace(g, same_as_a=True) for g in evidence.grades)
    evidence = msgspec.structs.replace(evidence, grades=hidden)
    with pytest.raises(EvidenceError, match="were not graded"):
        judge(evidence, script, DIGEST, script)


def test_nan_can_be_in_no_evidence() -> None:
    with pytest.raises(ValueError, match="finite"):
        Grade(0, 0, (float("nan"),), (0.0,), False)


def test_lower_precision_is_refused_where_only_equivalent_outputs_are_accepted() -> None:
    host = MadeHost(effect=0.4, gap=2.5)
    assert run(host).word == "incorrect"


def test_lower_precision_passes_where_quality_is_accepted_and_shown() -> None:
    good, bad = (run_on_set(loss) for loss in (0.001, 0.25))
    assert (good.word, good.output_class) == ("faster", "quality")
    assert [one.ok for one in good.quality] == [True, True, True]
    assert bad.word == "incorrect"
    assert "perplexity" in bad.reason
    assert [one.ok for one in bad.quality] == [False, True, True]


def test_the_quality_suite_is_asked_for_where_its_class_decides() -> None:
    with pytest.raises(EvidenceError, match="the evidence has none"):
        run_on_set(0.0, sides=0)
    with pytest.raises(EvidenceError, match="each side and the start"):
        run_on_set(0.0, sides=2)


def run_on_set(loss: float, sides: int = 3) -> Verdict:
    """A trial that differs beyond rounding, with side B's text `loss` nats a token worse."""
    objective = Objective("output_tok_s", output_class="quality")
    lease = make_lease(
        objective=objective, plan=Plan(tier="slow", rule=StopRule(), quality=True), tier="slow"
    )
    script = make_script_for(lease)
    script = msgspec.structs.replace(script, quality=quality_items(None, Path()))
    texts = [3.0 + 0.01 * i for i, q in enumerate(script.quality) if q.kind == "text"]
    asked = [item.tokens for item in script.quality if item.kind != "text"]
    said = tuple((7,) * count for count in asked)
    gaps = tuple((0.0,) * count for count in asked)
    found = (
        Quality("A", 1, 1.0, tuple(texts), said, gaps),
        Quality("R", 1, 1.0, tuple(texts)),
        Quality("B", 1, 1.0, tuple(x + loss for x in texts), said, gaps),
    )
    host = MadeHost(effect=0.4, gap=2.5, changes={"quality": found[:sides]})
    return judge(host.run(lease, script), script, DIGEST, script)


def test_a_change_that_nothing_imports_is_not_engaged_without_any_timing() -> None:
    lease = make_lease(plan=Plan(tier="fast", rule=StopRule()))
    evidence = Evidence(
        lease.trial,
        1,
        1,
        "h",
        lease,
        "c",
        None,
        "hot",
        engaged=False,
        engaged_detail="not imported",
    )
    verdict = judge(evidence, None, "5" * 64, None)
    assert (verdict.word, verdict.interval) == ("not_engaged", None)
    assert "not imported" in verdict.reason


def test_a_change_that_never_ran_is_not_engaged() -> None:
    assert run(MadeHost(effect=0.4, changes={"engaged": False})).word == "not_engaged"


def test_a_gain_whose_engagement_was_not_tried_is_not_believed() -> None:
    assert run(MadeHost(effect=0.4, changes={"engaged": None})).word == "not_engaged"


def test_a_gain_without_a_graded_output_is_not_believed() -> None:
    with pytest.raises(EvidenceError, match="graded"):
        run(MadeHost(effect=0.4, grades=()))


def test_a_broken_limit_makes_a_gain_slower_in_the_slow_tier_only() -> None:
    objective = Objective("output_tok_s", limits=(Limit("ttft_ms_p99", at_most=1.0),))
    slow = Plan(tier="slow", rule=StopRule())
    verdict = run(MadeHost(effect=0.4), objective=objective, tier="slow", plan=slow)
    assert verdict.word == "slower"
    assert "ttft_ms_p99" in verdict.reason
    assert run(MadeHost(effect=0.4), objective=objective).word == "faster"


def test_a_pair_with_a_void_block_does_not_count() -> None:
    lease = make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=6)))
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    first = msgspec.structs.replace(evidence.blocks[2], void="the frozen side used the CPU")
    extra = MadeHost(effect=0.4, seed=9)
    lease_long = make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=7)))
    longer = extra.run(lease_long, make_script_for(lease_long))
    blocks = (*evidence.blocks[:2], first, *evidence.blocks[3:], *longer.blocks[12:14])
    voided = msgspec.structs.replace(evidence, blocks=blocks)
    verdict = judge(voided, script, DIGEST, script)
    assert verdict.interval is not None
    assert verdict.interval.units == 6
    assert verdict.voided_blocks == 1


def test_a_trial_whose_every_pair_is_void_is_inconclusive() -> None:
    lease = make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=30)))
    script = make_script_for(lease)
    lease_all = make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=45)))
    evidence = MadeHost().run(lease_all, make_script_for(lease_all))
    blocks = tuple(msgspec.structs.replace(b, void="stolen CPU") for b in evidence.blocks)
    assert len(blocks) == 2 * len(script.pairs)
    evidence = msgspec.structs.replace(evidence, blocks=blocks, lease=lease)
    verdict = judge(evidence, script, DIGEST, script)
    assert verdict.word == "inconclusive"
    assert verdict.alpha_spent == 0.0


def test_stopping_before_the_rule_says_so_is_no_evidence() -> None:
    with pytest.raises(EvidenceError, match="the rule goes on"):
        cut(pairs_left=2)


def test_going_on_after_a_decision_is_no_evidence() -> None:
    plan = Plan(tier="fast", rule=StopRule(mode="fixed", max_units=12))
    lease = make_lease(plan=plan)
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    deciding = make_lease(plan=Plan(tier="fast", rule=StopRule(max_units=12)))
    evidence = msgspec.structs.replace(evidence, lease=deciding)
    with pytest.raises(EvidenceError, match="the rule said faster"):
        judge(evidence, script, DIGEST, script)


def test_another_seed_than_the_committed_one_is_no_evidence() -> None:
    with pytest.raises(EvidenceError, match="committed"):
        run(MadeHost(changes={"commitment": commitment_of("other")}))


def test_easier_requests_than_the_seed_gives_are_no_evidence() -> None:
    lease = make_lease()
    script = make_script_for(lease)
    easier = tuple(msgspec.structs.replace(script.pairs[0]) for _ in script.pairs)
    other = msgspec.structs.replace(script, pairs=easier)
    with pytest.raises(EvidenceError, match="follows from its seed"):
        judge(MadeHost().run(lease, other), other, DIGEST, script)


def test_the_side_that_ran_first_must_be_the_one_that_was_drawn() -> None:
    lease = make_lease()
    script = make_script_for(lease)
    evidence = MadeHost().run(lease, script)
    swapped = (
        msgspec.structs.replace(evidence.blocks[1], position=0),
        msgspec.structs.replace(evidence.blocks[0], position=1),
        *evidence.blocks[2:],
    )
    evidence = msgspec.structs.replace(evidence, blocks=swapped)
    with pytest.raises(EvidenceError, match="ran first"):
        judge(evidence, script, DIGEST, script)


def test_faster_than_the_memory_can_read_the_weights_is_quarantined() -> None:
    counters = {"bytes_per_pass": 270_000_000, "bandwidth_bytes_s": 10_000_000_000}
    verdict = run(MadeHost(effect=0.4, changes={"counters": counters}))
    assert verdict.word == "faster"
    assert verdict.quarantined is not None
    possible = {"bytes_per_pass": 270_000_000, "bandwidth_bytes_s": 40_000_000_000}
    assert run(MadeHost(effect=0.4, changes={"counters": possible})).quarantined is None


def test_a_side_whose_own_blocks_keep_coming_out_void_is_quarantined() -> None:
    lease = make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=10)))
    script = make_script_for(lease)
    longer = make_lease(plan=Plan(tier="fast", rule=StopRule(mode="fixed", max_units=15)))
    evidence = MadeHost(effect=0.4).run(longer, make_script_for(longer))

    def judged(side: str) -> Verdict:
        """Void in every other pair, 5 of the 15 that the script holds."""
        blocks = tuple(
            msgspec.structs.replace(b, void="kept waiting")
            if b.side == (side if side != "both" else "AB"[b.pair // 2 % 2])
            and b.pair % 2
            and b.pair < 10
            else b
            for b in evidence.blocks
        )
        held = msgspec.structs.replace(evidence, blocks=blocks, lease=lease)
        return judge(held, script, DIGEST, script)

    assert len(script.pairs) == 15
    assert judged("B").quarantined is not None
    assert judged("both").quarantined is None


def test_a_huge_gain_is_quarantined() -> None:
    assert run(MadeHost(effect=2.5)).quarantined is not None


def test_a_cold_trial_counts_engine_starts() -> None:
    rule = StopRule(min_units=5, max_units=8)
    plan = Plan(tier="cold", rule=rule, starts=8, pairs_per_start=2)
    verdict = run(MadeHost(effect=0.4), tier="cold", plan=plan)
    assert verdict.word == "faster"
    assert verdict.interval is not None
    assert verdict.interval.unit == "starts"
    assert verdict.interval.units <= 8


def test_the_same_evidence_gives_the_same_verdict() -> None:
    assert run(MadeHost(effect=0.1, seed=3)) == run(MadeHost(effect=0.1, seed=3))


def test_heavy_tails_and_drift_do_not_make_winners() -> None:
    def noise_of(seed: int) -> MadeHost:
        state = {"x": 0.0, "t": 0.0}

        def noise(rng: random.Random) -> float:
            state["x"] = 0.5 * state["x"] + rng.gauss(0, 0.02)
            state["t"] += 0.002
            spike = 0.3 if rng.random() < 0.05 else 0.0
            return state["x"] + state["t"] + spike

        return MadeHost(noise=noise, seed=seed)

    words = [run(noise_of(seed)).word for seed in range(200)]
    assert words.count("faster") <= 10


def spoil(change, side: str = "B") -> Verdict:  # type: ignore[no-untyped-def]
    lease = make_lease()
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    blocks = list(evidence.blocks)
    index = next(i for i, block in enumerate(blocks) if block.side == side and i >= 4)
    sample = blocks[index].requests[0]
    spoiled = msgspec.structs.replace(sample, **change(sample))
    blocks[index] = msgspec.structs.replace(blocks[index], requests=(spoiled,))
    evidence = msgspec.structs.replace(evidence, blocks=tuple(blocks))
    return judge(evidence, script, DIGEST, script)


def cut(pairs_left: int) -> Verdict:
    lease = make_lease()
    script: Script = make_script_for(lease)
    evidence: Evidence = MadeHost(effect=0.4).run(lease, script)
    evidence = msgspec.structs.replace(evidence, blocks=evidence.blocks[: 2 * pairs_left])
    return judge(evidence, script, DIGEST, script)


def test_wrong_outputs_of_untimed_requests_are_graded_with_the_rest() -> None:
    """A batch that only the untimed requests show, and that side B gets wrong."""
    lease = make_lease(tier="slow", plan=Plan("slow", StopRule()))
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4, differs=False).run(lease, script)
    wrong = tuple(
        _other_untimed(block) if block.side == "B" else block for block in evidence.blocks
    )
    changed = msgspec.structs.replace(evidence, blocks=wrong)
    with pytest.raises(EvidenceError, match="were not graded"):
        judge(changed, script, DIGEST, script)
    request = script.pairs[0].warm_up[0]
    gaps = (9.0,) * request.max_tokens
    graded = (Grade(0, request.id, gaps, (-9.0,) * request.max_tokens, False),)
    verdict = judge(msgspec.structs.replace(changed, grades=graded), script, DIGEST, script)
    assert verdict.word == "incorrect"


def test_an_untimed_request_without_an_answer_is_incorrect() -> None:
    lease = make_lease(tier="slow", plan=Plan("slow", StopRule()))
    script = make_script_for(lease)
    evidence = MadeHost(effect=0.4).run(lease, script)
    blocks = tuple(
        msgspec.structs.replace(block, warm_up=block.warm_up[1:]) if block.side == "B" else block
        for block in evidence.blocks
    )
    verdict = judge(msgspec.structs.replace(evidence, blocks=blocks), script, DIGEST, script)
    assert verdict.word == "incorrect"
    assert "untimed" in verdict.reason


def _other_untimed(block: BlockSample) -> BlockSample:
    other = tuple(
        msgspec.structs.replace(item, tokens=tuple(token + 1 for token in item.tokens))
        for item in block.warm_up
    )
    return msgspec.structs.replace(block, warm_up=other)
