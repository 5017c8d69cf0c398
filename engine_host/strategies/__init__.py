"""How trial processes come to be: `fork` (CPU) and `spares` (CUDA), behind one protocol."""

from engine_host.strategies.base import Resident, Strategy
from engine_host.strategies.fork import ForkStrategy
from engine_host.strategies.spares import SpareStrategy

__all__ = ["ForkStrategy", "Resident", "SpareStrategy", "Strategy", "strategy_for"]


def strategy_for(device_class: str) -> Strategy:
    """The strategy of a device class: a live CUDA context can't be forked."""
    return SpareStrategy() if device_class.startswith("cuda") else ForkStrategy()
