"""The evaluation file for OpenEvolve's evaluator: a cold vLLM for each program.

A program is JSON: `files` (path to whole text) and `knobs`. Runs in the peer's environment with the
standard library only.
"""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

FIRST_SAME = 0.8  # least share of requests whose first token is the start's own


def evaluate(program_path: str, settings: dict[str, Any]) -> dict[str, float | str]:
    """`combined_score` is output tokens a second, 0 for what breaks or answers something else."""
    began_s = time.monotonic()
    program = json.loads(Path(program_path).read_text(encoding="utf-8"))
    work = Path(tempfile.mkdtemp(prefix="candidate-", dir=settings["folder"]))
    try:
        answer = _run(program, work, settings)
    except (subprocess.SubprocessError, ValueError) as error:
        return {"combined_score": 0.0, "error": 1.0, "detail": str(error)[-300:]}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    reference = Path(settings["folder"]) / "reference.json"
    if not reference.exists():  # the first program is the start itself
        reference.write_text(json.dumps(answer["tokens"]), encoding="utf-8")
    right = _first_same(answer["tokens"], json.loads(reference.read_text(encoding="utf-8")))
    correct = right >= FIRST_SAME
    return {
        "combined_score": answer["output_tok_s"] if correct else 0.0,
        "output_tok_s": answer["output_tok_s"],
        "first_tokens_same": right,
        "incorrect": float(not correct),
        "first_tokens_s": answer["first_tokens_s"],
        "wall_s": time.monotonic() - began_s,
    }


def _run(program: dict[str, Any], work: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Raises CalledProcessError, TimeoutExpired, or ValueError with the last line it said."""
    for path, text in program["files"].items():
        file = work / "overlay" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    scratch = Path(settings["cache"]) if settings["cache"] else work / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    job = {
        **settings["job"],
        "overlay": str(work / "overlay"),
        "knobs": {**settings["job"]["knobs"], **program["knobs"]},
    }
    (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
    done = subprocess.run(
        [settings["python"], settings["once"], str(work / "job.json")],
        capture_output=True,
        text=True,
        timeout=settings["limit_s"],
        env={**settings["variables"], "TMPDIR": str(scratch)},
        cwd=scratch,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ValueError(said[-1])
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _first_same(found: list[list[int]], wanted: list[list[int]]) -> float:
    pairs = list(zip(found, wanted, strict=True))
    return sum(a[:1] == b[:1] and len(a) == len(b) for a, b in pairs) / len(pairs)
