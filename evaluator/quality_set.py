"""The fixed set that quality is measured on, in a model's tokens. See held_out/README.md.

The same items for every trial of a model, so that every release is held against the start on the
same words. No workload's prompts come from these texts.
"""

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import msgspec

from evaluator.workloads.base import WorkloadError
from evaluator.workloads.content import RANDOM_IDS
from protos.trial import QualityItem

FOLDER = Path(__file__).parent / "held_out"
GIVEN = 8  # tokens of a passage that are given; the next ones are scored
SCORED = 48
OPEN = 16  # passages that are also gone on from
OPEN_GIVEN = 24
OPEN_TOKENS = 24
_LIMIT_S = 60.0
Ids = tuple[int, ...]


def quality_items(tokenizer_json: bytes | None, folder: Path) -> tuple[QualityItem, ...]:
    """The set for a tokenizer; of random ids, without tasks, for an engine that has no language.

    Made once a tokenizer, then read from `folder`. Raises WorkloadError when it can't be used.
    """
    if tokenizer_json is None:
        return _random_items()
    passages = (FOLDER / "text.txt").read_text("utf-8").strip().split("\n\n")
    tasks = [line.split("|") for line in (FOLDER / "tasks.txt").read_text("utf-8").splitlines()]
    texts = [*passages, *(part for task in tasks for part in task)]
    opening, *ids = _encoded(tokenizer_json, texts, folder)
    text_ids, task_ids = ids[: len(passages)], ids[len(passages) :]
    return (
        *(_text(opening + found) for found in text_ids),
        *(_open(opening + found) for found in text_ids[:: max(1, len(text_ids) // OPEN)]),
        *(
            QualityItem("task", opening + prompt, answer, len(answer))
            for prompt, answer in zip(task_ids[::2], task_ids[1::2], strict=True)
        ),
    )


def _text(ids: Ids) -> QualityItem:
    return QualityItem("text", ids[:GIVEN], ids[GIVEN : GIVEN + SCORED])


def _open(ids: Ids) -> QualityItem:
    return QualityItem("open", ids[:OPEN_GIVEN], tokens=OPEN_TOKENS)


def _random_items() -> tuple[QualityItem, ...]:
    rng = random.Random("quality")
    passages = [
        tuple(rng.randrange(1, RANDOM_IDS) for _ in range(GIVEN + SCORED)) for _ in range(24)
    ]
    return (*map(_text, passages), *map(_open, passages[::3]))


def _encoded(tokenizer_json: bytes, texts: list[str], folder: Path) -> list[Ids]:
    key = hashlib.sha256(hashlib.sha256(tokenizer_json).digest())
    key.update(msgspec.json.encode(texts))
    path = folder / f"quality-{key.hexdigest()}.json"
    if not path.exists():
        _encode(tokenizer_json, texts, path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Ids])
    except msgspec.DecodeError as error:
        raise WorkloadError(f"{path} is damaged: remove it ({error})") from error


def _encode(tokenizer_json: bytes, texts: list[str], path: Path) -> None:
    given = {"tokenizer": tokenizer_json.decode("utf-8", "replace"), "texts": texts}
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("encode.py"))],
            input=msgspec.json.encode(given),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WorkloadError(f"the tokenizer took more than {_LIMIT_S:.0f} s") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing said"]
        raise WorkloadError(f"the model's tokenizer can't be used: {said[-1]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_bytes(done.stdout)
    draft.replace(path)
