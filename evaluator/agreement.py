"""How well the fast tier predicts the slow one: see services/tiers.py, which the report reads."""

from services.tiers import Agreement, agreement, kendall_tau_b, missed_winners

__all__ = ["Agreement", "agreement", "kendall_tau_b", "missed_winners"]
