"""The report's figures, as SVG text that takes its colours and font from the page.

matplotlib is imported here and nowhere else, and this module only when a report is written.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from protos.trial import Interval
from services.report.series import Dot, PairPanel, Step, TimeBar

# Colours that stand for variables of the page's style sheet, so that a dark page gets dark figures.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
WORD_COLOURS = {
    "faster": "#040401",
    "slower": "#040402",
    "no_gain": "#040403",
    "inconclusive": "#040404",
    "incorrect": "#040405",
    "invalid": "#040405",
    "not_engaged": "#040405",
}
ACCENT = "#040401"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    "#040401": "--faster",
    "#040402": "--slower",
    "#040403": "--no-gain",
    "#040404": "--inconclusive",
    "#040405": "--wrong",
}
_SIZE_IN = (5.2, 3.1)
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "perpetune",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def over_time(steps: Sequence[Step], promotions: Sequence[float], metric: str) -> str | None:
    """The incumbent's measured metric through the campaign, and every candidate beside it."""
    if not steps:
        return None
    with _figure() as (axes, done):
        times = [step.minutes for step in steps]
        axes.plot(times, [s.incumbent for s in steps], color=INK, lw=1.2, label="incumbent")
        for word, group in _by_word(steps):
            axes.scatter(
                [s.minutes for s in group],
                [s.candidate for s in group],
                s=16,
                color=WORD_COLOURS[word],
                label=word.replace("_", " "),
                zorder=3,
            )
        for minutes in promotions:
            axes.axvline(minutes, color=ACCENT, lw=0.9, ls=(0, (3, 2)))
        axes.set_xlabel("minutes since the campaign opened (dashed: a release)")
        axes.set_ylabel(metric)
        axes.set_ylim(bottom=0)
        _legend(axes)
        return done("over-time")


def pairs(panel: PairPanel) -> str | None:
    """One trial's pairs, in the order in which they ran, with the interval that was concluded."""
    if not panel.ratios:
        return None
    with _figure() as (axes, done):
        if panel.interval is not None:
            _band(axes, panel.interval)
        places = range(1, len(panel.ratios) + 1)
        counted = [
            (x, r) for x, r, v in zip(places, panel.ratios, panel.void, strict=True) if not v
        ]
        void = [(x, r) for x, r, v in zip(places, panel.ratios, panel.void, strict=True) if v]
        axes.scatter([x for x, _ in counted], [r for _, r in counted], s=18, color=INK, zorder=3)
        if void:
            xs, ratios = [x for x, _ in void], [r for _, r in void]
            axes.scatter(xs, ratios, s=22, color=MUTED, marker="x", zorder=3)
        axes.axhline(1.0, color=MUTED, lw=1.0)
        axes.set_xlabel("pair, in the order they ran (x: void)")
        axes.set_ylabel("B / A (1: no difference)")
        return done(panel.name)


def fast_against_slow(dots: Sequence[Dot]) -> str | None:
    """What the fast tier said against what the slow one did, one dot a candidate."""
    if not dots:
        return None
    with _figure() as (axes, done):
        values = [value for dot in dots for value in (dot.fast, dot.slow)]
        low, high = min([*values, 1.0]), max([*values, 1.0])
        margin = 0.05 * (high - low) or 0.05
        ends = (low - margin, high + margin)
        axes.plot(ends, ends, color=MUTED, lw=1.0, ls=(0, (3, 2)), label="both agree")
        axes.scatter([d.fast for d in dots], [d.slow for d in dots], s=20, color=INK, zorder=3)
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
        axes.set_xlabel("fast tier, B / A")
        axes.set_ylabel("slow tier, B / A")
        _legend(axes)
        return done("fast-slow")


def time_spent(bars: Sequence[TimeBar]) -> str | None:
    """Seconds by what they went into, the longest at the top."""
    if not bars:
        return None
    with _figure() as (axes, done):
        ordered = sorted(bars, key=lambda bar: bar.seconds)
        axes.barh([b.name for b in ordered], [b.seconds for b in ordered], color=INK, height=0.6)
        for place, bar in enumerate(ordered):
            axes.text(
                bar.seconds,
                place,
                f"\N{NO-BREAK SPACE}{bar.seconds:.0f} s",
                va="center",
                color=MUTED,
            )
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("seconds")
        return done("time")


def _band(axes: Axes, interval: Interval) -> None:
    if interval.low is not None and interval.high is not None:
        axes.axhspan(interval.low, interval.high, color=ACCENT, alpha=0.18, lw=0)
    axes.axhline(interval.estimate, color=ACCENT, lw=1.4)


def _by_word(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    for word in WORD_COLOURS:
        group = [step for step in steps if step.word == word]
        if group:
            yield word, group


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, handletextpad=0.3)


@contextmanager
def _figure() -> Iterator[tuple[Axes, Callable[[str], str]]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE_IN, layout="constrained")

        def done(name: str) -> str:
            out = io.StringIO()
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
            return for_page(out.getvalue(), name)

        yield figure.add_subplot(), done


def for_page(svg: str, name: str) -> str:
    """An SVG document as an element of the page: own ids, the page's colours and font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.strip()
