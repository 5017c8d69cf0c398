"""Parametrised rewrites of the slim engine: what a person would try by hand, ready to be tried."""

from .catalogue import REWRITES
from .rewrite import AnchorGoneError, Change, Parameter, Rewrite

__all__ = ["REWRITES", "AnchorGoneError", "Change", "Parameter", "Rewrite"]
