"""Noises that break what tests usually assume: log-times of blocks, one row a run, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Array]


def independent(rng: np.random.Generator, runs: int, blocks: int) -> Array:
    return rng.normal(0.0, 0.02, (runs, blocks))


def autocorrelated(rng: np.random.Generator, runs: int, blocks: int) -> Array:
    """First-order autoregression, 0.9 from one block to the next."""
    steps = rng.normal(0.0, 0.02, (runs, blocks))
    for block in range(1, blocks):
        steps[:, block] += 0.9 * steps[:, block - 1]
    return steps


def heavy_tailed(rng: np.random.Generator, runs: int, blocks: int) -> Array:
    """Student's t with 1.5 degrees of freedom: no variance."""
    return 0.02 * rng.standard_t(1.5, (runs, blocks))


def drifting(rng: np.random.Generator, runs: int, blocks: int) -> Array:
    """The machine gets slower or faster all the time, by up to 60 % over a trial, and swings."""
    at = np.linspace(0.0, 1.0, blocks)[None, :]
    slope = rng.uniform(-0.6, 0.6, (runs, 1))
    swing = 0.1 * np.sin(2 * math.pi * (rng.uniform(1, 12, (runs, 1)) * at + rng.random((runs, 1))))
    return slope * at + swing + rng.normal(0.0, 0.02, (runs, blocks))


def bursting(rng: np.random.Generator, runs: int, blocks: int) -> Array:
    """A rival that comes and goes: a third of the time everything takes half as long again."""
    state = rng.random((runs, blocks)) < 0.15
    busy = np.zeros((runs, blocks), dtype=bool)
    for block in range(1, blocks):
        busy[:, block] = busy[:, block - 1] ^ state[:, block]
    return 0.4 * busy + rng.normal(0.0, 0.02, (runs, blocks))


def heavy_light(rng: np.random.Generator, runs: int, blocks: int) -> Array:
    """Engine starts: mostly alike, some far off."""
    return 0.01 * rng.standard_t(3.0, (runs, blocks))


NOISES: dict[str, Noise] = {
    "independent": independent,
    "autocorrelated": autocorrelated,
    "heavy_tailed": heavy_tailed,
    "drifting": drifting,
    "bursting": bursting,
}
