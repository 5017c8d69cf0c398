"""Strategies: each turns what is known of a campaign into its next proposal; one a file."""

from .base import Context, Outcome, Proposal, Strategy, Tried

__all__ = ["Context", "Outcome", "Proposal", "Strategy", "Tried"]
