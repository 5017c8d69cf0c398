"""Cold trials: each unit is one engine start from disk on each side."""

from __future__ import annotations

from engine_host.measure import Measurement


class ColdMeasurement(Measurement):
    """Runs one cold trial."""
