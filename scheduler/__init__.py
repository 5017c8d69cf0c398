"""Decides what happens next: admission, racing, leases, promotion, budgets. Owns no engine."""
