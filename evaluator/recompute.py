"""Derive a verdict again from blobs alone, for anyone who doubts it.

The evidence names its lease and script; the script names the tokenizer; the lease names the trace.
"""

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from evaluator.blocks import EvidenceError
from evaluator.judge import judge
from evaluator.quality_set import quality_items
from evaluator.workloads.base import Content, WorkloadError
from evaluator.workloads.content import RandomContent, TextContent, text_content
from evaluator.workloads.make import make_generator, make_script
from protos.codec import UndecodableError, decode
from protos.trial import Evidence, Lease, QualityItem, Script, Verdict

T = TypeVar("T")


class Reader(Protocol):
    """The part of a blob store that is needed."""

    def get(self, digest: str) -> bytes: ...


class ScriptMaker:
    """Scripts from seeds. `folder` keeps the texts' token ids; a few texts and traces are held."""

    def __init__(self, blobs: Reader, folder: Path) -> None:
        self._blobs = blobs
        self._folder = folder
        self._contents: dict[str, TextContent] = {}
        self._traces: dict[str, bytes] = {}

    def script(self, lease: Lease, seed: str, tokenizer: str | None, max_context: int) -> Script:
        """The script that follows from a seed. Raises WorkloadError when it can't be made."""
        if max_context < 8:
            raise WorkloadError(f"a context of {max_context} tokens is too short for a workload")
        content: Content = RandomContent() if tokenizer is None else self.content(tokenizer)
        generator = make_generator(
            lease.workload, content, max_context, self._trace(lease.workload.trace)
        )
        script = make_script(lease, seed, generator, tokenizer, max_context)
        if not lease.plan.quality:
            return script
        items = self._quality(tokenizer)
        # Half of it where it only goes into the report: a closing trial should be short.
        decides = lease.objective.output_class == "quality"
        return msgspec.structs.replace(script, quality=items if decides else items[::2])

    def _quality(self, tokenizer: str | None) -> tuple[QualityItem, ...]:
        return quality_items(self._blobs.get(tokenizer) if tokenizer else None, self._folder)

    def content(self, tokenizer: str) -> TextContent:
        """The texts in the tokens of a tokenizer blob. Raises WorkloadError."""
        if tokenizer not in self._contents:
            made = text_content(self._blobs.get(tokenizer), self._folder)
            _hold(self._contents, tokenizer, made)
        return self._contents[tokenizer]

    def _trace(self, digest: str | None) -> bytes | None:
        if digest is None:
            return None
        if digest not in self._traces:
            _hold(self._traces, digest, self._blobs.get(digest))
        return self._traces[digest]


def _hold(held: dict[str, T], key: str, value: T, most: int = 2) -> None:
    while len(held) >= most:
        del held[next(iter(held))]
    held[key] = value


def read_evidence(blobs: Reader, digest: str) -> Evidence:
    """The evidence of a digest. Raises EvidenceError when the blob is no evidence."""
    return _read(blobs, digest, Evidence)


def read_script(blobs: Reader, evidence: Evidence) -> Script | None:
    """The script that the evidence names. Raises EvidenceError when the blob is no script."""
    return None if evidence.script is None else _read(blobs, evidence.script, Script)


def judge_again(
    evidence: Evidence, script: Script | None, digest: str, maker: ScriptMaker
) -> Verdict:
    """Judge evidence whose blobs are at hand. Raises EvidenceError."""
    derived = None
    if script is not None:
        try:
            derived = maker.script(
                evidence.lease, script.seed, script.tokenizer, script.max_context
            )
        except WorkloadError as error:
            raise EvidenceError(f"its workload can't be made again: {error}") from error
    return judge(evidence, script, digest, derived)


def recompute(blobs: Reader, digest: str, folder: Path) -> Verdict:
    """The verdict of an evidence blob, derived from nothing else than blobs.

    Raises EvidenceError when no verdict can stand on it.
    """
    evidence = read_evidence(blobs, digest)
    script = read_script(blobs, evidence)
    return judge_again(evidence, script, digest, ScriptMaker(blobs, folder))


def _read(blobs: Reader, digest: str, kind: type[T]) -> T:
    try:
        return decode(blobs.get(digest), kind)
    except UndecodableError as error:
        raise EvidenceError(f"blob {digest[:12]} is no {kind.__name__}: {error}") from error
