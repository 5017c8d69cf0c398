"""Benchmarks: each prints ratios taken in one run, as JSON on its last line."""
