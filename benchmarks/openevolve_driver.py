"""Runs in the peer's environment: OpenEvolve's own Evaluator over a list of programs.

`driver.py JOB`: evaluates each program in turn and prints one JSON line for each as it is done.
"""

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from openevolve.config import EvaluatorConfig
from openevolve.evaluator import Evaluator


async def main(job: dict[str, Any]) -> None:
    """Every program through `evaluate_program`, as an evolution would, one at a time."""
    config = EvaluatorConfig(
        timeout=job["limit_s"] + 30,
        max_retries=0,  # our evaluation file reports what breaks; nothing is tried again
        cascade_evaluation=False,
        parallel_evaluations=1,
        evaluator_args={"settings": job["settings"]},
    )
    evaluator = Evaluator(config, job["evaluation_file"], suffix=".json")
    for program in job["programs"]:
        began_s = time.monotonic()
        text = json.dumps({"files": program["files"], "knobs": program["knobs"]})
        metrics = await evaluator.evaluate_program(text, program["label"])
        spent_s = time.monotonic() - began_s
        print(json.dumps({"label": program["label"], "wall_s": spent_s, **metrics}), flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
