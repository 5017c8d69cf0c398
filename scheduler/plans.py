"""How each tier is measured. Alphas are per direction."""

from __future__ import annotations

import msgspec

from protos.messages import OpenCampaign
from protos.trial import Limits, Plan, StopRule, Tier

# A lease runs out this long after its trial came to the head of its host's queue.
EXPIRES_S: dict[str, float] = {"fast": 120.0, "slow": 240.0, "cold": 480.0}
# What a trial takes until this campaign has measured some of its own.
GUESS_S: dict[str, float] = {"fast": 1.5, "slow": 8.0, "cold": 40.0}

# Logits from the float32 reference that no rounding explains; half as much is refused as well.
HOPELESS_GAP = 2.0

RECHECK = "recheck"  # the purpose of the independent trial that a quarantined gain needs
RECHECK_GRADES = 32


def plan_for(opening: OpenCampaign, tier: Tier, purpose: str) -> Plan:
    """The declared plan of a trial.

    `final` and `random_final` measure, they don't race: always eight starts, and an interval whose
    two sides share the campaign's alpha. Six starts are the fewest that can decide at 0.05.
    `recheck` repeats a tier without stopping early and grades outputs by the dozen.
    """
    if purpose == RECHECK:
        plan = plan_for(opening, tier, "")
        rule = msgspec.structs.replace(plan.rule, mode="fixed")
        return msgspec.structs.replace(plan, rule=rule, grade_requests=RECHECK_GRADES)
    objective, policy = opening.objective, opening.policy
    quality = objective.output_class == "quality"
    if purpose in ("final", "random_final"):
        rule = StopRule(policy.alpha_campaign / 2, objective.min_effect, 8, 8, mode="fixed")
        told = quality or purpose == "final"  # both sides on the same set, in every report
        return Plan("cold", rule, _LONG, starts=8, prove_engagement=False, quality=told)
    if tier == "fast":
        return Plan(
            "fast",
            _fast_rule(opening),
            grade_requests=4,
            force_rung=policy.force_rung,
            hopeless_gap=None if quality else HOPELESS_GAP,
        )
    if tier == "slow":
        rule = StopRule(0.025, objective.min_effect, 4, 10)
        return Plan(
            "slow",
            rule,
            _SLOW,
            grade_requests=8,
            prove_engagement=False,
            quality=quality,
            force_rung=policy.force_rung,
        )
    rule = StopRule(0.05, objective.min_effect, 6, 8)
    return Plan("cold", rule, _LONG, starts=8, prove_engagement=False)


def _fast_rule(opening: OpenCampaign) -> StopRule:
    """Turns are as good as pairs where every one of them is the same kind of work: batch 1."""
    objective = opening.objective
    if opening.workload.name == "single" and objective.metric == "output_tok_s":
        return StopRule(0.05, objective.min_effect, 8, 96, unit="turns")
    return StopRule(0.05, objective.min_effect, 4, 24)


_SLOW = Limits(block_s=30.0)
_LONG = Limits(start_s=60.0, prepare_s=30.0, block_s=30.0)
