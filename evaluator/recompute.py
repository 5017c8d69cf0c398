"""Derive a verdict again from blobs alone, for anyone who doubts it.

The evidence names its lease and script; the script names the tokenizer; the lease names the trace.
"""

from pathlib import Path
from typing import Protocol, TypeVar

from evaluator.blocks import EvidenceError
from evaluator.judge import judge
from evaluator.workloads.base import Content, WorkloadError
from evaluator.workloads.content import RandomContent, text_content
from evaluator.workloads.make import make_generator, make_script
from protos.codec import UndecodableError, decode
from protos.trial import Evidence, Lease, Script, Verdict

T = TypeVar("T")


class Reader(Protocol):
    """The part of a blob store that is needed."""

    def get(self, digest: str) -> bytes: ...


def read_evidence(blobs: Reader, digest: str) -> Evidence:
    """The evidence of a digest. Raises EvidenceError when the blob is no evidence."""
    return _read(blobs, digest, Evidence)


def script_for(
    blobs: Reader, lease: Lease, seed: str, tokenizer: str | None, max_context: int, cache: Path
) -> Script:
    """The script that follows from a seed. `cache` keeps the texts' token ids.

    Raises WorkloadError when the lease's workload can't be made.
    """
    if max_context < 8:
        raise WorkloadError(f"a context of {max_context} tokens is too short for any workload")
    content: Content = RandomContent()
    if tokenizer is not None:
        content = text_content(blobs.get(tokenizer), cache)
    trace = None if lease.workload.trace is None else blobs.get(lease.workload.trace)
    generator = make_generator(lease.workload, content, max_context, trace)
    return make_script(lease, seed, generator, tokenizer, max_context)


def recompute(blobs: Reader, digest: str, cache: Path) -> Verdict:
    """The verdict of an evidence blob, derived from nothing else than blobs.

    Raises EvidenceError when no verdict can stand on it.
    """
    evidence = read_evidence(blobs, digest)
    script = derived = None
    if evidence.script is not None:
        script = _read(blobs, evidence.script, Script)
        try:
            derived = script_for(
                blobs, evidence.lease, script.seed, script.tokenizer, script.max_context, cache
            )
        except WorkloadError as error:
            raise EvidenceError(f"its workload can't be made again: {error}") from error
    return judge(evidence, script, digest, derived)


def _read(blobs: Reader, digest: str, kind: type[T]) -> T:
    try:
        return decode(blobs.get(digest), kind)
    except UndecodableError as error:
        raise EvidenceError(f"blob {digest[:12]} is no {kind.__name__}: {error}") from error
