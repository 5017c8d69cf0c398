"""One tree of errors.

Findings are values, not errors. `TroubleError` is the outside world failing (retried with a bounded
delay). Anything that isn't a PerpetuneError is a bug and is loud.
"""


class PerpetuneError(Exception):
    """The root of every error the chassis raises on purpose."""


class TroubleError(PerpetuneError):
    """The outside world failed; the same work may succeed later."""


class BusUnavailable(TroubleError):
    """The broker could not be reached, or did not confirm, within the time given."""


class NoAnswer(TroubleError):
    """Nobody serves this request at the moment."""


class AskTimeout(TroubleError):
    """Somebody may serve this request, but did not answer in time."""


class AskTrouble(TroubleError):
    """Who was asked had trouble serving the request."""


class Refused(PerpetuneError):
    """Raised by an ask handler: the request itself can't be served. The asker gets AskRefused."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AskRefused(Refused):
    """Who was asked refused the request; `reason` is one line that says what to do."""


class Conflict(PerpetuneError):
    """A compare-and-swap lost: the entity has moved on. Fold again and decide again."""

    def __init__(self, entity: str, id: str, expected: int, actual: int) -> None:
        super().__init__(f"{entity} {id} is at sequence {actual}, not {expected}")
        self.entity = entity
        self.id = id
        self.expected = expected
        self.actual = actual


class StorageFull(TroubleError):
    """The broker's storage limit is reached; nothing was written."""


class BlobError(PerpetuneError):
    """A blob is missing, damaged, or can't be written."""


class SettingsError(PerpetuneError):
    """A setting is unknown or wrong; the message names it and its value."""


class BrokerError(PerpetuneError):
    """The embedded broker can't be started; one line that says why and what to do."""
