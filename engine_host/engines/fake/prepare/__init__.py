"""Preparation steps: the start release has none."""
