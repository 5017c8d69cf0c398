"""What can go wrong around engine processes. A slow or wrong patch is none of these."""

from services.errors import PerpetuneError, TroubleError


class HostError(PerpetuneError):
    """The engine host can't do what it was asked; one line that says why."""


class UnprotectedError(HostError):
    """This machine can't confine engine processes."""


class EngineLostError(TroubleError):
    """An engine of the host's own (zygote, reference) died or misbehaved: no verdict may follow."""


class TrialFailedError(PerpetuneError):
    """A trial process broke a limit, the protocol, or died. A finding about the patch.

    `phase` is `start`, `prepare` or `block`.
    """

    def __init__(self, phase: str, detail: str) -> None:
        super().__init__(f"{phase}: {detail}")
        self.phase = phase
        self.detail = detail


class NotHotError(PerpetuneError):
    """The patch can't be loaded into a running engine; the warm rung can."""
