"""OpenTelemetry: spans to a JSONL file a process, and to OTLP when an endpoint is set.

The W3C context travels in message headers: one candidate's work is one trace over all rooms.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_W3C = TraceContextTextMapPropagator()
Attribute = str | int | float | bool


class _State:
    """The process's one provider; set by `setup`, before which spans are not recorded."""

    provider: TracerProvider | None = None


class JsonlExporter(SpanExporter):
    """One span a line, written when the span ends: a killed process loses only open spans."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a", buffering=1, encoding="utf-8")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            self._file.write(json.dumps(_line(span), separators=(",", ":")) + "\n")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._file.close()


def setup(service: str, traces_dir: Path) -> None:
    """Record this process's spans in `<traces_dir>/<service>-<pid>.jsonl`.

    With OTEL_EXPORTER_OTLP_ENDPOINT set they are also sent there.
    """
    shutdown()
    resource = Resource.create({"service.name": service, "process.pid": os.getpid()})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    file = traces_dir / f"{service}-{os.getpid()}.jsonl"
    provider.add_span_processor(SimpleSpanProcessor(JsonlExporter(file)))
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        # Imported only here: it brings an HTTP client of several megabytes.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _State.provider = provider


def shutdown() -> None:
    """Flush and close. Later spans are not recorded."""
    if _State.provider is not None:
        _State.provider.shutdown()
        _State.provider = None


@contextmanager
def span(
    name: str,
    parent: Context | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    **attributes: Attribute,
) -> Iterator[Span]:
    """A span around a block; `parent` is a context from `extract`, else the current one.

    An exception marks the span as failed and goes on.
    """
    tracer = (_State.provider or trace.NoOpTracerProvider()).get_tracer("perpetune")
    with tracer.start_as_current_span(
        name, context=parent, kind=kind, attributes=attributes, set_status_on_exception=True
    ) as current:
        yield current


def failed(current: Span, reason: str) -> None:
    """Mark a span as failed without an exception."""
    current.set_status(Status(StatusCode.ERROR, reason))


def trace_id() -> str | None:
    """The current trace's id, 32 hex digits, or None outside a span."""
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None


def inject() -> dict[str, str]:
    """The current context as message headers; empty outside a span."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers


def extract(headers: Mapping[str, str] | None) -> Context:
    """The context that a message's headers carry. Without one, the empty context: a new trace."""
    return _W3C.extract(dict(headers or {}), context=Context())


def trace_id_of(headers: Mapping[str, str] | None) -> str | None:
    """The trace id that a message's headers carry, or None."""
    context = trace.get_current_span(extract(headers)).get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None


def _line(span: ReadableSpan) -> dict[str, object]:
    context, parent = span.get_span_context(), span.parent
    start_ns, end_ns = span.start_time or 0, span.end_time or 0
    return {
        "name": span.name,
        "trace_id": format(context.trace_id, "032x") if context else None,
        "span_id": format(context.span_id, "016x") if context else None,
        "parent_id": format(parent.span_id, "016x") if parent else None,
        "service": span.resource.attributes.get("service.name"),
        "pid": span.resource.attributes.get("process.pid"),
        "kind": span.kind.name.lower(),
        "start_ns": start_ns,
        "duration_ns": end_ns - start_ns,
        "status": span.status.status_code.name.lower(),
        "reason": span.status.description,
        "attributes": dict(span.attributes or {}),
        "links": [format(link.context.trace_id, "032x") for link in span.links],
        "events": [{"name": e.name, "attributes": dict(e.attributes or {})} for e in span.events],
    }
