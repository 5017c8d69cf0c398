"""The room's process stays small: no torch, no table or plot library, well under its limit."""

import json
import subprocess
import sys

LIMIT_MB = 120
PROGRAM = """
import json, resource, sys
import proposer.__main__
from proposer.strategies.knobs import KnobSearch
import services.main, services.bus, services.ledger
heavy = [m for m in ("torch", "pandas", "plotly", "scipy", "sqlalchemy") if m in sys.modules]
resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
print(json.dumps([resident / 1e6, heavy]))
"""


def test_the_room_imports_nothing_heavy_and_is_small() -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    resident_mb, heavy = json.loads(said)
    assert heavy == []
    assert resident_mb < LIMIT_MB
