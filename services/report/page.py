"""`report.html`: one self-contained page, readable on a phone and in the dark. No scripts."""

import time
from html import escape
from importlib import resources

from services.blobs import Blobs
from services.report import known, plots, series
from services.report.record import CampaignRecord
from services.report.sections import (
    candidates_table,
    cards,
    hero,
    releases,
    tally,
    trust,
)
from services.report.summary import Summary

MAX_PANELS = 5  # the closing trials and the newest releases; `perpetune show` has the others


def page(
    record: CampaignRecord, summary: Summary, blobs: Blobs, outside: known.Known | None = None
) -> str:
    """The whole page as text. `outside`: what was measured of the engine without Perpetune."""
    style = resources.files("services.report").joinpath("style.css").read_text()
    body = "\n".join(
        (
            _head(record, summary),
            hero(summary),
            cards(summary),
            known.section(outside),
            "<h2>Verdicts</h2>",
            tally(summary),
            "<h2>How far to trust it</h2>",
            trust(summary),
            "<h2>How it went</h2>",
            _figures(record, summary, blobs),
            "<h2>Releases</h2>",
            releases(record, blobs),
            "<h2>Every candidate</h2>",
            candidates_table(record),
            _footer(summary),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(summary.campaign)} - Perpetune</title><style>\n{style}</style></head>"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _head(record: CampaignRecord, summary: Summary) -> str:
    target = summary.target
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.opened_s or 0.0))
    limits = "".join(
        f", keeping {escape(limit.metric)} "
        + (f"at most {limit.at_most:g}" if limit.at_most is not None else "")
        + (f"at least {limit.at_least:g}" if limit.at_least is not None else "")
        for limit in summary.objective.limits
    )
    reason = f" ({escape(summary.reason)})" if summary.reason else ""
    return (
        f"<header><h1>{escape(summary.campaign)}</h1>"
        f'<p class="lead">Tuning <b>{escape(target.engine)}</b> with '
        f"<b>{escape(target.model)}</b> ({escape(target.precision)}, "
        f"{escape(target.device_class)}) for <b>{escape(summary.objective.metric)}</b> on workload "
        f"<b>{escape(summary.workload.name)}</b>{limits}; outputs no looser than "
        f"<b>{escape(summary.objective.output_class)}</b>.</p>"
        f'<p class="muted">Opened {began}. {escape(summary.state.capitalize())}{reason}.</p>'
        "</header>"
    )


def _figures(record: CampaignRecord, summary: Summary, blobs: Blobs) -> str:
    metric = summary.objective.metric
    drawn = [
        (
            "Gain over time",
            plots.over_time(series.steps(record), series.promotions(record), metric),
            f"{metric} in every fast trial, by when it ended: the line is the incumbent that was "
            "measured beside the candidate, minute by minute on this machine.",
        ),
        *(
            (panel.title, plots.pairs(panel), _concluded(panel))
            for panel in series.panels(record, blobs)[:MAX_PANELS]
        ),
        (
            "Fast against slow",
            plots.fast_against_slow(series.fast_slow(record)),
            "Candidates that both tiers measured. The fast tier only chooses what is worth a slow "
            "trial; on the dashed line it would be right to the last digit.",
        ),
        (
            "Where the time went",
            plots.time_spent(series.time_bars(record, blobs)),
            "Seconds by phase over all trials, and of checks, builds and engine rebuilds "
            "(these overlap with trials).",
        ),
    ]
    return '<div class="figures">' + "".join(_figure(*one) for one in drawn) + "</div>"


def _figure(title: str, svg: str | None, caption: str) -> str:
    drawing = svg or '<p class="muted">Nothing to draw: no trial measured it.</p>'
    return (
        f"<figure><h3>{escape(title)}</h3>{drawing}<figcaption>{escape(caption)}</figcaption>"
        "</figure>"
    )


def _concluded(panel: series.PairPanel) -> str:
    interval = panel.interval
    if interval is None or interval.low is None or interval.high is None:
        return "Each dot is one pair; the data give no interval."
    return (
        f"Each dot is one pair; the band is the interval {interval.low:.3f} to "
        f"{interval.high:.3f}, valid at any stopping time, over {interval.units} {interval.unit}."
    )


def _footer(summary: Summary) -> str:
    name = escape(summary.campaign)
    return (
        "<footer><h2>Check it</h2>"
        "<p>Everything here is derived from the campaign's event log and its evidence blobs. "
        "Derive it again:</p>"
        f"<pre>perpetune report {name}</pre>"
        "<p>See one candidate's change, raw evidence and trace:</p>"
        f"<pre>perpetune show CANDIDATE --campaign {name}</pre></footer>"
    )
