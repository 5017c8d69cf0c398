"""Requests as every bus serves and reads them."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from opentelemetry.trace import SpanKind

from protos import codec, subjects
from services.bus.base import Handler
from services.errors import AskRefused, AskTrouble, Refused, TroubleError
from services.log import get_log
from services.telemetry import extract, failed, span

FAILED = "Pt-Failed"

Request = TypeVar("Request", bound=msgspec.Struct)
Reply = TypeVar("Reply", bound=msgspec.Struct)


async def serve(
    handler: Handler[Request], accepts: type[Request], raw: bytes, headers: Mapping[str, str] | None
) -> tuple[bytes, dict[str, str]]:
    """Run an ask handler and return the body and headers of its answer. Never raises."""
    name = f"answer {subjects.message_name(accepts)}"
    with span(name, parent=extract(headers), kind=SpanKind.SERVER) as current:
        try:
            return codec.encode(await handler(codec.decode(raw, accepts))), {}
        except (codec.UndecodableError, Refused) as error:
            failure = codec.Failed("refused", str(error))
        except TroubleError as error:
            failure = codec.Failed("trouble", str(error))
        except Exception:  # a bug in one answer must not end the room; it is logged in full
            get_log("bus").exception("an ask handler failed", ask=name)
            failure = codec.Failed("bug", "the room that was asked failed; its log says how")
        failed(current, failure.reason)
        return codec.encode(failure), {FAILED: failure.kind}


def read_answer(raw: bytes, headers: Mapping[str, str] | None, reply: type[Reply]) -> Reply:
    """The reply in an answer, or its failure raised: AskRefused or AskTrouble."""
    if not (headers and FAILED in headers):
        return codec.decode(raw, reply)
    failure: Any = codec.decode(raw, codec.Failed)
    if failure.kind == "refused":
        raise AskRefused(failure.reason)
    raise AskTrouble(failure.reason)
