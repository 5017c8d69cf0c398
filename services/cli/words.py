"""How numbers and verdicts read in a terminal. Pure."""

from protos.trial import Interval, Verdict

# The order in which verdicts are counted out everywhere; wins and losses side by side.
ORDER = ("faster", "slower", "no_gain", "inconclusive", "incorrect", "invalid", "not_engaged")
STYLES = {
    "faster": "green",
    "slower": "red",
    "no_gain": "yellow",
    "inconclusive": "dim",
    "incorrect": "magenta",
    "invalid": "magenta",
    "not_engaged": "magenta",
}


def ratio(value: float) -> str:
    """`1.234x`."""
    return f"{value:.3f}x"


def bounds(interval: Interval) -> str:
    """`[1.20, 1.28]`; a bound that the data don't give yet reads `?`."""
    low = "?" if interval.low is None else f"{interval.low:.3f}"
    high = "?" if interval.high is None else f"{interval.high:.3f}"
    return f"[{low}, {high}]"


def interval(value: Interval | None) -> str:
    """`1.234x [1.20, 1.28], 12 pairs`, or `not measured`."""
    if value is None:
        return "not measured"
    return f"{ratio(value.estimate)} {bounds(value)}, {value.units} {value.unit}"


def verdict(value: Verdict) -> str:
    """One verdict on one line: the word, then the numbers or the reason."""
    if value.interval is None:
        return f"{value.word}: {value.reason}" if value.reason else value.word
    return f"{value.word}: {interval(value.interval)}"


def counts(words: dict[str, int]) -> str:
    """`12 faster, 30 slower, …`, in the usual order; the words without a count are left out."""
    known = [f"{words[word]} {word}" for word in ORDER if words.get(word)]
    return ", ".join(known) if known else "none yet"


def losses(reasons: dict[str, int]) -> str:
    """`12 attempts without a verdict, most often: <reason>`."""
    count, often = sum(reasons.values()), max(reasons, key=lambda reason: reasons[reason])
    return f"{count} attempts without a verdict, most often: {often}"


def duration(seconds: float) -> str:
    """`45 s`, `4 min 05 s`, `2 h 03 min`."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def metric(name: str, value: float) -> str:
    """A metric with its unit, from the unit in its name."""
    if "_ms" in name:
        return f"{value:.2f} ms"
    if name.endswith("tok_s"):
        return f"{value:.1f} tok/s"
    if name.endswith("_s"):
        return f"{value:.2f} /s"
    return f"{value:.3f}"
