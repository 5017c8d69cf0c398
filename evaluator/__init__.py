"""The evaluator: checks, builds, workloads, statistics and verdicts. It trusts nobody.

Every decision is a pure function of its inputs; `actor.py` only receives, calls and publishes.
"""
