"""Decode rates of the playbook's rewrites against the start, in one run on the default model.

    python -m benchmarks.playbook_decode [--only NAME ...] [--all-settings]

One sequence, and four together; each rewrite is measured next to the start, so that drift of the
machine cancels. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.playbook_trees import Child, lay_out, start_sources
from engine_host.models import prepare
from proposer.playbook import REWRITES, Change, Rewrite
from protos.candidate import Scalar
from services.local.system import default_home

PROMPTS = [[1, *range(200 + 37 * row, 264 + 37 * row)] for row in range(4)]
TOKENS = 33


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.playbook_decode")
    parser.add_argument("--only", nargs="*", default=[], help="names of rewrites")
    parser.add_argument("--all-settings", action="store_true")
    options = parser.parse_args(arguments)
    weights = prepare("smollm2", default_home()).folder
    sources, results = start_sources(), {}
    with tempfile.TemporaryDirectory() as scratch, Child(weights) as child:
        start = _job(Path(scratch) / "start", sources, Change({}))
        before = child.run(start)
        for number, (label, rewrite, settings) in enumerate(_chosen(options)):
            change = rewrite.rewrite(sources, settings)
            job = _job(Path(scratch) / f"tree{number}", sources, change)
            answer, after = child.run(job), child.run(start)
            results[label] = _result(before, answer, after)
            before = after
            print(_line(label, results[label]), flush=True)
    print(json.dumps({"benchmark": "playbook_decode", "results": results}))
    return 0


def _chosen(options: argparse.Namespace) -> Iterator[tuple[str, Rewrite, dict[str, Scalar]]]:
    for rewrite in REWRITES:
        if options.only and rewrite.name not in options.only:
            continue
        for settings in rewrite.settings():
            yield rewrite.label(settings), rewrite, settings
            if not options.all_settings:
                break


def _job(folder: Path, sources: dict[str, str], change: Change) -> dict[str, Any]:
    libraries = lay_out(sources, change, folder)
    return {
        "tree": str(folder),
        "libraries": libraries,
        "prompts": PROMPTS,
        "tokens": TOKENS,
        "rounds": 2,
    }


def _result(
    before: dict[str, Any], answer: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    if "error" in answer:
        return {"error": answer["error"]}
    result: dict[str, Any] = {"prepare_s": round(answer["prepare_s"], 3)}
    for name in ("single_tok_s", "together_tok_s"):
        start = max(before[name], after[name])
        result[name] = round(answer[name], 2)
        result[f"start_{name}"] = round(start, 2)
        result[f"{name.removesuffix('_tok_s')}_ratio"] = round(answer[name] / start, 3)
    same = sum(a == b for a, b in zip(answer["together"], before["together"], strict=True))
    result["same_tokens"] = f"{same}/{len(PROMPTS)}"
    return result


def _line(label: str, result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{label:44} {result['error'][:120]}"
    return (
        f"{label:44} one {result['single_tok_s']:7.1f} tok/s x{result['single_ratio']:.3f}   "
        f"four {result['together_tok_s']:7.1f} tok/s x{result['together_ratio']:.3f}   "
        f"prepare {result['prepare_s']:.2f} s   same {result['same_tokens']}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
