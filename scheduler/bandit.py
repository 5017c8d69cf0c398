"""Which proposer's candidate is tried next: Thompson sampling with a floor for everyone.

A strategy that has had less than half of an equal share of the device seconds goes first, so that a
bad start ends nobody. The draw's seed comes from the ledger, so a replay chooses the same.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from scheduler.state import Spend

FLOOR = 0.5


def choose(strategies: Collection[str], spend: Mapping[str, Spend], seed: str) -> str:
    """One of `strategies`, which must not be empty. `spend` may lack those never tried."""
    names = sorted(strategies)
    seen = {name: spend.get(name, Spend()) for name in names}
    fair_s = sum(s.device_s for s in seen.values()) / len(names)
    poorest = min(names, key=lambda name: (seen[name].device_s, seen[name].ended, name))
    if seen[poorest].ended == 0 or seen[poorest].device_s < FLOOR * fair_s:
        return poorest
    rng = random.Random(seed)  # seeded, not secret
    drawn = {
        name: rng.betavariate(1.0 + s.won, 1.0 + max(0, s.ended - s.won))
        for name, s in seen.items()
    }
    return max(names, key=lambda name: drawn[name])
