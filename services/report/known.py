"""What the engine gives without Perpetune, measured from outside, where somebody measured it.

`vllm_known.json` in a run folder, as `python -m benchmarks.vllm_known --out` writes it: vLLM's
default and its best known configuration (and the release, by its export), asked by one client.
"""

from html import escape
from pathlib import Path

import msgspec

FILE = "vllm_known.json"
_NAMES = {
    "default": "as a user gets it",
    "best_known": "best known by hand",
    "release": "this campaign's release, by its export",
}


class Start(msgspec.Struct):
    """One start of a server; medians over its rounds."""

    start_s: float
    output_tok_s: float
    ttft_ms_p50: float
    tpot_ms_p50: float


class Known(msgspec.Struct):
    """What the section shows; other fields of the file stay in the file."""

    what: str
    workload: str
    output_tok_s: dict[str, float]
    ratios: dict[str, float]
    starts: dict[str, list[Start]]


def read(folder: Path) -> Known | None:
    """What was measured; None when there is no such file, or it holds something else."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Known)
    except (OSError, msgspec.DecodeError):
        return None


def section(known: Known | None) -> str:
    """A table, or nothing."""
    if known is None:
        return ""
    rows = "".join(
        f"<tr><td>{escape(_NAMES.get(name, name))}</td><td>{speed:.1f}</td>"
        f"<td>{'; '.join(f'{s.output_tok_s:.1f}' for s in known.starts.get(name, []))}</td></tr>"
        for name, speed in known.output_tok_s.items()
    )
    ratios = ", ".join(
        f"{escape(name.replace('_', ' '))}: <b>{value:.2f}x</b>"
        for name, value in known.ratios.items()
    )
    return (
        "<h2>Against the engine alone</h2>"
        f'<p class="muted">{escape(known.what)}, workload {escape(known.workload)}; none of '
        "Perpetune's code ran in these servers.</p>"
        '<div class="scroll"><table><thead><tr><th>configuration</th>'
        "<th>output tok/s, median of starts</th><th>each start</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div><p>{ratios}</p>"
    )
