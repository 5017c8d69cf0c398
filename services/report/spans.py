"""One trace, joined from the span files of every process of a run."""

import contextlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Span:
    """One span as a process wrote it. `start_ns` is nanoseconds of the epoch."""

    name: str
    process: str
    span_id: str
    parent_id: str | None
    start_ns: int
    duration_ns: int
    failed: str | None


def spans_of(traces: Path, trace_ids: Collection[str]) -> list[Span]:
    """The spans of some traces, by start. Lines left unfinished by a kill are passed over."""
    found: list[Span] = []
    wanted = set(trace_ids)
    for file in sorted(traces.glob("*.jsonl")):
        with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if any(trace in line for trace in wanted):
                    found += _span(line, wanted)
    return sorted(found, key=lambda span: span.start_ns)


def processes(spans: list[Span]) -> list[str]:
    """The processes that took part, in the order in which they came in."""
    return list(dict.fromkeys(span.process for span in spans))


def tree(spans: list[Span]) -> list[tuple[int, Span]]:
    """(depth, span), parents before their children; one whose parent is lost is at the top."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        parent = span.parent_id if span.parent_id in known else None
        children.setdefault(parent, []).append(span)
    out: list[tuple[int, Span]] = []
    stack = [(0, span) for span in reversed(children.get(None, []))]
    while stack:
        depth, span = stack.pop()
        out.append((depth, span))
        stack += [(depth + 1, child) for child in reversed(children.get(span.span_id, []))]
    return out


def _span(line: str, wanted: set[str]) -> list[Span]:
    try:
        raw: dict[str, Any] = json.loads(line)
    except ValueError:
        return []
    if raw.get("trace_id") not in wanted:
        return []
    return [
        Span(
            name=str(raw["name"]),
            process=f"{raw['service']}[{raw['pid']}]",
            span_id=str(raw["span_id"]),
            parent_id=raw.get("parent_id"),
            start_ns=int(raw["start_ns"]),
            duration_ns=int(raw["duration_ns"]),
            failed=raw.get("reason") or "failed" if raw.get("status") == "error" else None,
        )
    ]
