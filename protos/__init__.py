"""The contract: everything the rooms may say to one another. stdlib + msgspec only, no I/O.

`messages.py` holds commands, asks and signals; `events.py` the ledger; the nouns have a file each.
"""

from protos.events import Event
from protos.messages import Answer, Ask, Command, Signal

__all__ = ["Answer", "Ask", "Command", "Event", "Signal"]
