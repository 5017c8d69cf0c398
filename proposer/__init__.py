"""Turns a release and what was learnt into candidates; one strategy a file."""
