"""`python -m evaluator`: the evaluator as a process; `python -m evaluator recompute RUN`: its
verdicts of a run, derived again."""

import sys
from pathlib import Path

from evaluator.actor import Evaluator
from services.main import run_room
from services.ports import Ports
from services.settings import Settings


def build(ports: Ports, settings: Settings) -> Evaluator:
    """The actor of these settings; what it keeps lies in `<home>/evaluator`."""
    home = Path(settings.home) if settings.home else Path.home() / ".cache" / "perpetune"
    return Evaluator(ports, home / "evaluator", instance=settings.instance)


if __name__ == "__main__":
    if sys.argv[1:2] == ["recompute"]:
        from evaluator import again  # the room itself has no use for run folders and brokers

        sys.exit(again.main(sys.argv[2:]))
    sys.exit(run_room("evaluator", build))
