"""Commands, requests and signals between rooms."""

from services.bus.base import Bus, DeadLetter, Delivery, DeliveryPolicy, Inbox, Signal
from services.bus.memory import MemoryBroker, MemoryBus
from services.bus.nats import NatsBus

__all__ = [
    "Bus",
    "DeadLetter",
    "Delivery",
    "DeliveryPolicy",
    "Inbox",
    "MemoryBroker",
    "MemoryBus",
    "NatsBus",
    "Signal",
]
