"""Tokens for prompts: slices of the shipped texts, or random ids where there is no tokenizer."""

import hashlib
import random
import subprocess
import sys
from array import array
from pathlib import Path

import msgspec

from evaluator.workloads.base import Tokens, WorkloadError

CORPUS = Path(__file__).parent / "corpus"
TEXTS = ("prose.txt", "code.txt")
RANDOM_IDS = 500  # an engine without a tokenizer knows token ids below this
_PIECE_TOKENS = 48
_TOKENISE_LIMIT_S = 120.0


class RandomContent:
    """Random token ids, for engines that have no language."""

    opening: Tokens = ()

    def prose(self, rng: random.Random, count: int) -> Tokens:
        return tuple(rng.randrange(1, RANDOM_IDS) for _ in range(count))

    def code(self, rng: random.Random, count: int) -> Tokens:
        return self.prose(rng, count)


class _Stored(msgspec.Struct):
    """What `tokenise.py` writes: token ids of each text, and which of them begin a word."""

    opening: list[int]
    texts: list[list[int]]
    starts: list[list[int]]


class TextContent:
    """Slices of the shipped texts. Each piece begins at a word; two or more pieces from places
    far apart make a prompt, so that there are too many prompts to learn by heart."""

    def __init__(self, stored: _Stored) -> None:
        self.opening: Tokens = tuple(stored.opening)
        self._ids = [array("I", ids) for ids in stored.texts]
        self._starts = [array("I", starts) for starts in stored.starts]

    def prose(self, rng: random.Random, count: int) -> Tokens:
        return self._slices(0, rng, count)

    def code(self, rng: random.Random, count: int) -> Tokens:
        return self._slices(1, rng, count)

    def _slices(self, text: int, rng: random.Random, count: int) -> Tokens:
        pieces = max(2, count // _PIECE_TOKENS) if count >= 4 else 1
        cuts = sorted(rng.sample(range(1, count), pieces - 1)) if pieces > 1 else []
        tokens: list[int] = []
        ids, starts = self._ids[text], self._starts[text]
        for begin, end in zip([0, *cuts], [*cuts, count], strict=True):
            at = rng.choice(starts) % max(1, len(ids) - (end - begin))
            tokens.extend(ids[at : at + end - begin])
        return tuple(tokens)


def text_content(tokenizer_json: bytes, folder: Path) -> TextContent:
    """The texts in the tokens of a model. Made once a tokenizer, then read from `folder`.

    The tokenizer runs in a process of its own: it would double this room's memory.
    Raises WorkloadError when it can't be read.
    """
    texts = [(CORPUS / name).read_bytes() for name in TEXTS]
    key = hashlib.sha256()
    for part in (tokenizer_json, *texts):
        key.update(hashlib.sha256(part).digest())
    path = folder / f"{key.hexdigest()}.json"
    if not path.exists():
        _tokenise(tokenizer_json, path)
    try:
        return TextContent(msgspec.json.decode(path.read_bytes(), type=_Stored))
    except msgspec.DecodeError as error:
        raise WorkloadError(f"{path} is damaged: remove it ({error})") from error


def _tokenise(tokenizer_json: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("tokenise.py")
    texts = [str(CORPUS / name) for name in TEXTS]
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(script), str(path), *texts],
            input=tokenizer_json,
            capture_output=True,
            timeout=_TOKENISE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WorkloadError(f"the tokenizer took more than {_TOKENISE_LIMIT_S:.0f} s") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing said"]
        raise WorkloadError(f"the model's tokenizer can't be used: {said[-1]}")
