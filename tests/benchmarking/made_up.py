"""Made-up results of grids, for tests of what is made of them."""

from pathlib import Path
from typing import Any

import numpy as np

from dial.benchmarking.benchmarks import get
from dial.benchmarking.cells import Cell

DIGITS, OFFICE, ABLATION = get("digits"), get("office31"), get("office31-ablation")
SCORES = np.random.default_rng(0).uniform(0.3, 1, size=(2, 2, 3))
Results = list[dict[str, Any]]


def result(task: str, row: str, seed: int, accuracy: float) -> dict[str, Any]:
    """A cell's, as if it had been run with the preset of the digits."""
    found = next(r for b in (DIGITS, OFFICE, ABLATION) for r in b.rows if r.name == row)
    settings = Cell(DIGITS.tasks[0], found, seed, Path(), "digits_cnn", {}).settings().stored()
    return {
        "task": task, "row": row, "seed": seed, "accuracy": accuracy, "settings": settings,
    }  # fmt: skip


def digits() -> Results:
    """Both transfers, `source_only` and `dial`, three seeds: `SCORES`."""
    return [
        result(task.key, row, seed, float(SCORES[i, j, seed]))
        for i, task in enumerate(DIGITS.tasks)
        for j, row in enumerate(("source_only", "dial"))
        for seed in range(3)
    ]


def without(results: Results, **where: Any) -> Results:
    """Those that differ from `where` in something."""
    return [r for r in results if any(r[key] != value for key, value in where.items())]
