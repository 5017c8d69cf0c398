"""How far a campaign's results can be trusted, in sentences for the terminal and the page. Pure."""

from services.report.summary import Summary


def false_promotions(summary: Summary) -> str:
    """The bound on releases without a gain, with what it is made of."""
    found = summary.false_promotions
    if found is None:
        return "none can have been made: no candidate came to its last trial"
    alphas = " x ".join(f"{alpha:g} ({tier})" for tier, alpha in found.alphas.items())
    return (
        f"at most {found.expected_at_most:.2g} expected among {found.candidates} candidates: "
        f"one without effect passes with at most {alphas}"
    )


def quality(summary: Summary) -> list[str]:
    """Start and release on the same set; one line where it wasn't measured."""
    if not summary.quality:
        return ["not measured: that is part of the closing trial"]
    return [
        f"{one.name}: {one.start:.4g} -> {one.release:.4g}{' ' if one.unit else ''}{one.unit} "
        f"({one.float32:.4g} in float32; worse by at most {one.worse_by_at_most:.4f}, "
        f"allowed {one.margin:g}, {one.items} items){'' if one.ok else ' NOT WITHIN ITS MARGIN'}"
        for one in summary.quality
    ]


def tiers(summary: Summary) -> list[str]:
    """How well the fast tier predicted the slow one, and what it cost."""
    known = summary.tiers
    if known.both == 0:
        return ["no candidate was measured by both the fast and the slow tier"]
    lines = [
        f"{known.both} candidates in both tiers, rank correlation {_tau(summary)}; "
        f"{known.confirmed} of {known.passed} fast winners won the slow tier"
    ]
    if known.audited:
        missed = f" ({', '.join(known.missed)})" if known.missed else ""
        lines.append(
            f"{len(known.missed)} missed winners{missed} among {known.audited} that the fast tier "
            "had refused and the slow one measured all the same"
        )
    else:
        lines.append("missed winners: not known, no refused candidate was given a slow trial")
    if known.regret is not None:
        lines.append(
            f"the fast tier's favourite is {_share(known.regret)} slower than the best of the slow"
        )
    least = "any gain" if known.least_gain == 0 else f"a fast gain of {known.least_gain:.1%}"
    lines.append(f"a slow trial is given from {least} on, as these trials have it")
    return lines


def canaries(summary: Summary) -> list[str]:
    """The judge on candidates whose verdict is known, a line for each kind."""
    if not summary.canaries:
        return ["none were judged"]
    return [
        f"{one.kind} in the {one.tier} tier: {one.wrong} of {one.judged} "
        f"{'falsely rejected' if one.kind == 'gain' else 'falsely accepted'} "
        f"(at most {one.at_most:.0%} of them all, 95 %)"
        for one in summary.canaries
    ]


def _tau(summary: Summary) -> str:
    known = summary.tiers
    if known.tau is None:
        return "not defined (fewer than two, or all alike)"
    if known.tau_low is None or known.tau_high is None:
        return f"{known.tau:.2f}"
    return f"{known.tau:.2f} [{known.tau_low:.2f}, {known.tau_high:.2f}]"


def _share(log_ratio: float) -> str:
    return f"{log_ratio:.1%}"
