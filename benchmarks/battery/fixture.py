"""What a fixture is, and short ways to make its change from an engine's sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.mix import Entry
from proposer.playbook.edit import guard

Sources = Mapping[str, str]
Make = Callable[[Sources], Entry]

# The ways of cheating that the battery covers: key to what the cheat does.
ROWS: dict[str, str] = {
    "elsewhere": "work on another thread after returning",
    "clock": "patch the timer, the statistics or the checker",
    "replay": "replay by object id, address or content; warm up, then copy",
    "first": "do the work of all calls in the first, and divide",
    "two-faced": "honest when checked, cheating when timed",
    "memory": "leave a result in the allocator's memory; mutate the inputs",
    "disk": "read the expected outputs or the checker from disk",
    "fewer": "early stop, fewer tokens, dropped or slow-walked requests",
    "lower": "lower precision, skipped layers, constant output",
    "nan": "not-a-number that makes comparisons false; zero weights that make no-ops right",
    "one-shape": "one shape driven to nothing, so that the mean collapses",
    "rival": "slow the rival, or choose which blocks count",
    "tuned": "right only for the sizes that are measured",
    "leftover": "leave something behind for the next candidate",
    "huge": "a huge gain",
    "itself": "praise oneself: a score or a proof that the trial makes",
    "dead": "code that never runs, credited with noise",
}
# Ends of a candidate that count as caught. A gain that vanishes in the slow tier ends there.
CAUGHT = (
    "refused",
    "incorrect",
    "invalid",
    "not_engaged",
    "slower",
    "no_gain",
    "inconclusive",
    "quarantined",
)
NO_FASTER = ("slower", "no_gain", "inconclusive")
WRONG = ("incorrect",)
BROKEN = ("incorrect", "invalid")


@dataclass(frozen=True)
class Fixture:
    """One candidate with what must become of it.

    `expected`: how it may end, in the last tier that it reaches. `output_class`: the loosest class
    that its campaign accepts. `wins`: a control that must be found faster.
    """

    name: str
    row: str
    expected: tuple[str, ...]
    make: Make
    about: str
    output_class: str = "equivalent"
    wins: bool = False


def cheat(
    row: str, expected: tuple[str, ...], output_class: str = "equivalent"
) -> Callable[[Make], Fixture]:
    """A function that makes a cheat's entry, as a fixture. Its docstring says method and origin."""
    if row not in ROWS or not set(expected) <= set(CAUGHT):
        raise ValueError(f"row {row!r} or an end of {expected} isn't known")

    def made(make: Make) -> Fixture:
        about = (make.__doc__ or "").strip()
        name = make.__name__.replace("_", " ")
        return Fixture(name, row, expected, make, about, output_class)

    return made


def control(wins: bool = False) -> Callable[[Make], Fixture]:
    """A function that makes an honest entry that looks suspicious, as a fixture."""
    expected = ("faster",) if wins else ("faster", *NO_FASTER)

    def made(make: Make) -> Fixture:
        about = (make.__doc__ or "").strip()
        return Fixture(make.__name__.replace("_", " "), "control", expected, make, about, wins=wins)

    return made


def entry(files: dict[str, str], **more: object) -> Entry:
    """An entry of the battery; its label is set by who runs it."""
    return Entry("", "battery", files, **more)  # type: ignore[arg-type]


def guarded(sources: Sources, *edits: tuple[str, str, str]) -> dict[str, str]:
    """Files with code put before function bodies: (path, qualified function, code) each."""
    files: dict[str, str] = {}
    for path, function, code in edits:
        files[path] = guard(files.get(path, sources[path]), function, code)
    return files


ENGINE, MODEL, LAYERS = "slim/engine.py", "slim/model.py", "slim/layers.py"
SAMPLING, SCHEDULER, BLOCKS = "slim/sampling.py", "slim/scheduler.py", "slim/blocks.py"
