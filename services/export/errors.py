"""What can't be exported."""

from services.errors import PerpetuneError


class ExportError(PerpetuneError):
    """The release can't be exported as asked; one line that says what to do."""
