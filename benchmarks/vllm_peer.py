"""The same candidates through OpenEvolve's evaluator, which starts a cold vLLM for each.

The peer runs in its own environment (`make openevolve`); what it starts is the same vLLM with the
same adapter, mapped weights and preloads as ours, so that only the way of trying a change differs.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engine_host
from benchmarks.mix import Entry
from engine_host import sandbox
from engine_host.environments import environment
from engine_host.errors import HostError
from protos.candidate import Scalar

FOLDER = Path(__file__).parent
LIMIT_S = 240  # of one candidate
GAIN = 1.05  # a score this far from the start's is called; the peer has no statistics of its own


@dataclass(frozen=True)
class Row:
    """What became of one candidate. `ratio` is candidate to start."""

    label: str
    wall_s: float
    word: str
    ratio: float | None = None
    rung: str = "cold"
    first_tokens_s: float | None = None


@dataclass(frozen=True)
class PeerSetting:
    """What every evaluation of the peer has in common; `cache` is kept between them, if given."""

    weights: Path
    knobs: dict[str, Scalar]
    blocks: list[list[dict[str, Any]]]
    folder: Path
    cache: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)


def peer_python() -> str:
    """The interpreter of the peer's environment. Raises HostError that says how to make it."""
    return environment("openevolve").python


def evaluate(setting: PeerSetting, entries: list[Entry]) -> list[Row]:
    """The start, then every entry, one after another. Rows of the entries only.

    Raises HostError when the peer itself breaks or can't run the start.
    """
    start = Entry("the start itself", "start")
    setting.folder.mkdir(parents=True, exist_ok=True)
    job = setting.folder / "job.json"
    job.write_text(json.dumps(_job(setting, [start, *entries])), encoding="utf-8")
    command = [peer_python(), str(FOLDER / "openevolve_driver.py"), str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(found) != 1 + len(entries):
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise HostError(f"the peer ended early: {said[-1]}")
    if not found[0].get("combined_score"):
        raise HostError(
            f"the peer can't run the start: {found[0].get('detail', 'no reason given')}"
        )
    return [row_of(one, found[0]["combined_score"]) for one in found[1:]]


def _job(setting: PeerSetting, entries: list[Entry]) -> dict[str, Any]:
    own = environment("vllm")
    return {
        "evaluation_file": str(FOLDER / "openevolve_evaluation.py"),
        "limit_s": LIMIT_S,
        "settings": {
            "python": own.python,
            "once": str(FOLDER / "vllm_once.py"),
            "variables": sandbox.environment() | own.variables(setting.knobs) | setting.variables,
            "limit_s": LIMIT_S,
            "folder": str(setting.folder.resolve()),
            "cache": str(setting.cache.resolve()) if setting.cache else None,
            "job": {
                "adapter": str(Path(engine_host.__file__).parent / "engines" / "vllm"),
                "weights": str(setting.weights),
                "knobs": setting.knobs,
                "blocks": setting.blocks,
            },
        },
        "programs": [
            {"label": entry.label, "files": entry.files, "knobs": entry.knobs} for entry in entries
        ],
    }


def row_of(metrics: dict[str, Any], start_tok_s: float) -> Row:
    """The peer's metrics of one program as a row: its word follows from its score alone."""
    label, wall_s = metrics["label"], metrics["wall_s"]
    if "output_tok_s" not in metrics:
        return Row(label, wall_s, "invalid")
    ratio = metrics["output_tok_s"] / start_tok_s
    word = "faster" if ratio >= GAIN else "slower" if ratio <= 1 / GAIN else "no_gain"
    if metrics["incorrect"]:
        word, ratio = "incorrect", None
    return Row(label, wall_s, word, ratio, first_tokens_s=metrics["first_tokens_s"])
