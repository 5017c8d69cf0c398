"""What the command line says when it can't do as told."""

from services.errors import PerpetuneError


class UsageError(PerpetuneError):
    """The command can't be carried out as given; one line that says what to do."""
