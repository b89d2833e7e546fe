"""Benchmarks: a grid of task, method and seed, run cell by cell, and its tables."""

from dial.benchmarking.rendering import print_table
from dial.benchmarking.running import Outcome, bench

__all__ = ["Outcome", "bench", "print_table"]
