"""The one error of model preparation."""


class ModelError(Exception):
    """A model can't be prepared; the message is one line that says what is wrong and what to do."""
