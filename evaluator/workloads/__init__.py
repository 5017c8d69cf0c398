"""Workloads: fresh requests from a seed, one shape a file. `make.py` is the door."""

from evaluator.workloads.base import Content, Generator, WorkloadError
from evaluator.workloads.make import make_generator, make_script

__all__ = ["Content", "Generator", "WorkloadError", "make_generator", "make_script"]
