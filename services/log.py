"""One JSON object a line, with the trace id of the work at hand bound to each."""

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from services.telemetry import trace_id

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def setup_log(room: str, instance: str, level: str = "info", file: Path | None = None) -> None:
    """Send every later log line of this process to `file`, or to standard error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_trace_id,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=_open(file)),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(room=room, instance=instance, pid=os.getpid())


def get_log(name: str) -> FilteringBoundLogger:
    """A logger; `name` says which part of the process speaks."""
    log: FilteringBoundLogger = structlog.get_logger(part=name)
    return log


def _open(file: Path | None) -> TextIO:
    if file is None:
        return sys.stderr
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.open("a", buffering=1, encoding="utf-8")


def _add_trace_id(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    current = trace_id()
    if current is not None:
        event["trace_id"] = current
    return event
