"""The event log, which is the truth: append by compare-and-swap, read, follow."""

from services.ledger.base import Ledger, Recorded, Unreadable
from services.ledger.memory import MemoryLedger
from services.ledger.nats import NatsLedger

__all__ = ["Ledger", "MemoryLedger", "NatsLedger", "Recorded", "Unreadable"]
