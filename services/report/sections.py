"""The report page's parts: gain, cards, verdicts, releases, the table of candidates. Pure."""

import math
from html import escape

from protos.target import METRICS
from protos.trial import WORDS, Interval, Verdict
from services.blobs import Blobs
from services.report import said
from services.report.change import knob_lines, release_diff
from services.report.record import CampaignRecord, CandidateRecord
from services.report.summary import Gain, Summary

FOREST_LIMIT = math.log(2.5)  # log-ratios beyond it are drawn at the edge


def hero(summary: Summary) -> str:
    """The gain in large, with its interval and what it is measured against."""
    gain = summary.gain
    if gain is None:
        if summary.state != "finished":
            why = "Release against start is measured last, and this campaign has not ended."
        elif len(summary.releases) > 1:
            why = "A release was made, but the closing measurement against the start is missing."
        else:
            why = "Nothing tried was provably faster and no worse, so the start stays in service."
        return (
            f'<section class="hero"><div class="big">No gain measured</div><p>{why}</p></section>'
        )
    kind = _kind(gain)
    return (
        f'<section class="hero"><div class="big {kind}" id="gain">{gain.estimate:.2f}x</div>'
        f"<p><b>{_bounds(gain)}</b> of {escape(gain.denominator)}.</p>"
        '<p class="muted">Measured after the search by itself: release and start side by side, '
        "in random order. No data that chose the release went into it.</p></section>"
    )


def cards(summary: Summary) -> str:
    """The smaller figures."""
    wanted = [summary.objective.metric, *(limit.metric for limit in summary.objective.limits)]
    shown = [name for name in METRICS if name in wanted and name in summary.start]
    parts = [
        _card(name, f"{summary.start[name]:.1f} to {summary.release[name]:.1f}", "start to release")
        for name in shown
        if name in summary.release
    ]
    random = summary.random_arm
    if random is None:
        parts.append(_card("random arm", "no gain measured", "control at the same budget"))
    else:
        note = f"{_bounds(random)} of the start; control at the same budget"
        parts.append(_card("random arm", f"{random.estimate:.2f}x", note))
    parts.append(
        _card(
            "spent",
            f"{summary.wall_s / 60:.1f} min",
            f"{summary.spend.device_s:.0f} s of engine time, {summary.spend.llm_tokens} LLM tokens",
        )
    )
    trials = ", ".join(f"{count} {tier}" for tier, count in summary.trials.items()) or "none"
    parts.append(_card("trials", str(sum(summary.trials.values())), trials))
    for rung, starts in summary.starts.items():
        took = "not timed" if starts.p50_s is None else f"{starts.p50_s:.2f} s"
        parts.append(_card(f"{rung} start", took, f"median of {starts.count}"))
    return f'<div class="cards">{"".join(parts)}</div>'


def tally(summary: Summary) -> str:
    """Wins and losses side by side, in proportion; attempts without a verdict beside them."""
    verdicts = summary.verdicts
    lost = "".join(
        f'<p class="muted">{count} attempts ended without a verdict: {escape(reason)}</p>'
        for reason, count in summary.lost_trials.items()
    )
    total = sum(verdicts.values())
    if not total:
        return f'<p class="muted">No verdict yet.</p>{lost}'
    words = [word for word in WORDS if verdicts.get(word)]
    bar = "".join(f'<span class="w-{w}" style="flex:{verdicts[w]}"></span>' for w in words)
    key = "".join(f'<span><i class="w-{w}"></i>{verdicts[w]} {_say(w)}</span>' for w in words)
    return f'<div class="tally">{bar}</div><div class="key">{key}</div>{lost}'


def trust(summary: Summary) -> str:
    """What the rules can have let through, and how well the fast tier chose."""
    parts = (
        ("Releases without a gain", [said.false_promotions(summary)]),
        ("Quality, release against start", said.quality(summary)),
        ("Fast tier against slow", said.tiers(summary)),
        ("Canaries", said.canaries(summary)),
    )
    return "".join(
        f"<h3>{title}</h3>" + "".join(f"<p>{escape(line)}</p>" for line in lines)
        for title, lines in parts
    )


def releases(record: CampaignRecord, blobs: Blobs) -> str:
    """Every release with its diff against the one before, the newest first."""
    made = [known for known in record.releases if known.release.number > 0]
    if not made:
        return '<p class="muted">None: the start is still the best that could be proved.</p>'
    parts = []
    for known in reversed(made):
        release = known.release
        parent = record.release_of(release.parent or "")
        candidate = record.candidates.get(release.candidate or "")
        label = candidate.candidate.label if candidate else ""
        why = candidate.candidate.rationale if candidate else ""
        change = _change(record, candidate, release_diff(release, parent, blobs) if parent else [])
        parts.append(
            f"<details><summary>Release {release.number}: {escape(label or release.id)}</summary>"
            f"<div><p>{escape(why)}</p><p><small>candidate <code>{escape(release.candidate or '')}"
            f"</code>, trials {_codes(known.trials)}</small></p>{change}</div></details>"
        )
    return "".join(parts)


def candidates_table(record: CampaignRecord) -> str:
    """Every candidate's verdicts, losses like wins, in the order in which they came."""
    rows = [row for known in record.candidates.values() for row in _rows(record, known)]
    if not rows:
        return '<p class="muted">None yet.</p>'
    head = "<th>candidate</th><th>tier</th><th>verdict</th><th>against the incumbent</th>"
    head += "<th>B / A</th><th>units</th><th>why</th>"
    return (
        f'<div class="scroll"><table id="candidates"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _rows(record: CampaignRecord, known: CandidateRecord) -> list[str]:
    name = f"{escape(known.candidate.label or known.candidate.id)}<br><small><code>"
    name += f"{known.candidate.id}</code> {escape(known.candidate.strategy)}</small>"
    if known.refused is not None:
        return [_row(name, "", "refused", None, known.refused)]
    if known.check is not None and not known.check.ok:
        return [_row(name, "check", "invalid", None, known.check.reason)]
    rows = []
    for trial_id in known.trials:
        trial = record.trials[trial_id]
        if trial.verdict is not None:
            rows.append(_verdict_row(name, trial.verdict))
        else:
            why = trial.void_reason or "; ".join(trial.lost) or "not ended"
            rows.append(_row(name, trial.lease.tier, "no verdict", None, why))
        name = ""
    return rows or [_row(name, "", "not tried", None, "")]


def _verdict_row(name: str, verdict: Verdict) -> str:
    reason = verdict.reason
    if verdict.quarantined:
        reason = f"{reason}; quarantined: {verdict.quarantined}".lstrip("; ")
    return _row(name, verdict.tier, verdict.word, verdict.interval, reason)


def _row(name: str, tier: str, word: str, interval: Interval | None, reason: str) -> str:
    numbers = units = forest = ""
    if interval is not None:
        numbers = f"{interval.estimate:.3f} [{_number(interval.low)}, {_number(interval.high)}]"
        units, forest = f"{interval.units} {interval.unit}", _forest(interval, word)
    return (
        f'<tr><td>{name}</td><td>{tier}</td><td class="word"><i class="w-{word}"></i>{_say(word)}'
        f'</td><td>{forest}</td><td class="num">{numbers}</td><td class="num">{units}</td>'
        f'<td class="reason">{escape(reason)}</td></tr>'
    )


def _forest(interval: Interval, word: str) -> str:
    """The interval as a small drawing: middle is no difference, right is better."""
    low = interval.estimate if interval.low is None else interval.low
    high = interval.estimate if interval.high is None else interval.high
    left, right, middle = _place(low), _place(high), _place(interval.estimate)
    return (
        f'<svg class="forest" viewBox="0 0 144 18" role="img" aria-label="{interval.estimate:.3f}">'
        '<line class="zero" x1="72" x2="72" y1="0" y2="18"/>'
        f'<line class="{word}" x1="{left:.1f}" x2="{right:.1f}" y1="9" y2="9" stroke-width="2"/>'
        f'<circle class="{word}" cx="{middle:.1f}" cy="9" r="2.6"/></svg>'
    )


def _place(ratio: float) -> float:
    log = math.log(ratio) if ratio > 0 else -FOREST_LIMIT
    return 72.0 + 68.0 * max(-1.0, min(1.0, log / FOREST_LIMIT))


def _change(record: CampaignRecord, candidate: CandidateRecord | None, diff: list[str]) -> str:
    parts = []
    if candidate is not None:
        base = record.release_of(candidate.candidate.base)
        before = base.knobs if base else {}
        knobs = knob_lines(before, candidate.candidate.knobs)
        if knobs:
            parts.append(f"<p>Knobs: {', '.join(f'<code>{escape(k)}</code>' for k in knobs)}</p>")
    if diff:
        parts.append("<pre>" + "\n".join(_diff_line(line) for line in diff) + "</pre>")
    return "".join(parts)


def _diff_line(line: str) -> str:
    kind = {"+": "add", "-": "del", "@": "at"}.get(line[:1])
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)


def _card(title: str, value: str, note: str) -> str:
    return (
        f'<div class="card"><h3>{escape(title)}</h3><div class="value">{escape(value)}</div>'
        f"<small>{escape(note)}</small></div>"
    )


def _kind(gain: Gain) -> str:
    if gain.low is not None and gain.low > 1.0:
        return "win"
    return "loss" if gain.high is not None and gain.high < 1.0 else ""


def _bounds(gain: Gain) -> str:
    return f"between {_number(gain.low)} and {_number(gain.high)} times"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _codes(names: tuple[str, ...]) -> str:
    return ", ".join(f"<code>{escape(name)}</code>" for name in names)


def _say(word: str) -> str:
    return word.replace("_", " ")
