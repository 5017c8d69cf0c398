"""The views of a running campaign: drawn in place on a terminal, plain lines elsewhere."""

import sys
import termios
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from protos import events as e
from services.cli import words
from services.cli.progress import Progress
from services.ledger.base import Recorded

PLAIN_EVERY_S = 15.0


class View(Protocol):
    """What the watcher tells of a running campaign."""

    def event(self, recorded: Recorded, progress: Progress) -> None:
        """A ledger event was folded in."""

    def tick(self, progress: Progress) -> None:
        """About once a second."""

    def say(self, line: str) -> None:
        """A line for the person, now."""

    def close(self) -> None:
        """The last word has been said."""


def open_view(out: TextIO | None = None) -> View:
    """A live view on a terminal, plain lines anywhere else."""
    out = out or sys.stdout
    return LiveView(Console(file=out)) if out.isatty() else PlainView(out)


class PlainView:
    """One line for what matters, and one of progress now and then. For logs and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last_s = time.monotonic()

    def event(self, recorded: Recorded, progress: Progress) -> None:
        line = told(recorded, progress)
        if line:
            self.say(line)

    def tick(self, progress: Progress) -> None:
        if time.monotonic() - self._last_s < PLAIN_EVERY_S:
            return
        self._last_s = time.monotonic()
        now_s = time.time()
        verdicts = words.counts(progress.record.verdict_counts())
        lost = progress.record.losses()
        self.say(
            f"{progress.phase()}; {progress.time_left(now_s)} left; verdicts: {verdicts}; "
            f"best so far: {progress.best()}"
            + (f"; {len(lost)} attempts lost, the last: {lost[-1]}" if lost else "")
        )

    def say(self, line: str) -> None:
        print(line, file=self._out, flush=True)

    def close(self) -> None:
        pass


class LiveView:
    """Drawn in place, once a second: engines, verdicts, best so far, time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._restore = quiet_ctrl_c()
        self._live.start()

    def event(self, recorded: Recorded, progress: Progress) -> None:
        if isinstance(recorded.event, e.ReleasePromoted | e.CampaignReady):
            line = told(recorded, progress)
            if line:
                self.say(line)

    def tick(self, progress: Progress) -> None:
        self._live.update(draw(progress, time.time()), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(Text(line))

    def close(self) -> None:
        self._live.stop()
        self._restore()


def quiet_ctrl_c() -> Callable[[], None]:
    """Stop the terminal from writing `^C` into the drawing; call the result to undo it."""
    if not sys.stdin.isatty():
        return lambda: None
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHOCTL
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    return lambda: termios.tcsetattr(fd, termios.TCSANOW, before)


def told(recorded: Recorded, progress: Progress) -> str | None:
    """The line that tells an event to a person, or None for one that isn't worth a line."""
    match recorded.event:
        case e.CampaignReady(wall_s=wall_s, host=host):
            return f"engines are warm on {host} after {words.duration(wall_s)}; searching"
        case e.ReleasePromoted(release=release) if release.number > 0:
            name = progress.label(release.candidate)
            return f"release {release.number}: {name}, confirmed on cold starts"
        case e.TrialVoided(trial=trial, reason=reason):
            return f"trial {trial} no longer counts: {reason}"
        case e.TrialEnded():
            row = progress.judged(recorded)
            if row is not None and row.tier != "fast":
                return f"{row.tier}: {row.label}: {row.word}: {row.numbers}"
    return None


def draw(progress: Progress, now_s: float) -> Panel:
    """The whole view as one renderable."""
    record = progress.record
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(ratio=1)
    facts.add_row("now", progress.phase())
    for line in progress.doing() or ["no engine yet"]:
        facts.add_row("engine", line)
    facts.add_row("candidates", progress.waiting())
    facts.add_row("verdicts", _coloured_counts(record.verdict_counts()))
    lost = record.losses()
    if lost:
        facts.add_row("lost", f"{len(lost)} attempts, the last: {lost[-1]}")
    facts.add_row("best so far", progress.best())
    facts.add_row("releases", str(max(0, len(record.releases) - 1)))
    facts.add_row("time left", progress.time_left(now_s))
    bar = ProgressBar(total=1.0, completed=progress.share_spent(now_s))
    parts: list[RenderableType] = [facts, bar]
    if progress.recent:
        parts.append(_recent(progress))
    return Panel(Group(*parts), title=record.campaign, subtitle="Ctrl-C pauses", padding=(0, 1))


def _recent(progress: Progress) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False, expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=4)
    for row in progress.recent:
        word = Text(row.word, style=words.STYLES.get(row.word, ""))
        table.add_row(row.label, Text(row.tier, style="dim"), word, row.numbers)
    return table


def _coloured_counts(counts: dict[str, int]) -> Text:
    text = Text()
    for word in words.ORDER:
        if counts.get(word):
            text.append(f"{counts[word]} {word}  ", style=words.STYLES[word])
    return text if text.plain else Text("none yet", style="dim")
