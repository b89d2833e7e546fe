"""The command that makes the results of a grid again."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dial.benchmarking.cells import Cell
from dial.benchmarking.grids import Benchmark
from dial.benchmarking.results import Result
from dial.reporting.repetition import option, shortest
from dial.training.settings import BEFORE, preset_for

TYPED = ("backbone", "weights", "image_size", "epochs", "steps", "batch_size", "lr")
"""Settings that `dial bench` has options for; the others come from a preset and the rows."""


def repeat_command(benchmark: Benchmark, results: Sequence[Result]) -> str | None:
    """What to type for these results, whichever commands made them; None if no options give them.

    `DIR` and `DATA` stand for the folders.
    """
    by_row = {result["row"]: result for result in results}  # seeds and tasks share their settings
    rows = [row for row in benchmark.rows if row.name in by_row]

    def agrees(preset: str, given: dict[str, Any]) -> bool:
        for row in rows:
            result = by_row[row.name]
            cell = Cell(benchmark.tasks[0], row, result["seed"], Path(), preset, given)
            if cell.settings().stored() != BEFORE | result["settings"]:
                return False
        return True

    found = shortest(results[0]["settings"], TYPED, agrees)
    if found is None:
        return None
    preset, given = found
    words = ["dial", "bench", benchmark.name, "--out", "DIR"]
    if any(not task.source.startswith("digits:") for task in benchmark.tasks):
        words += ["--data", "DATA"]
    if preset != preset_for(given.get("backbone"), default=benchmark.preset):
        words += ["--preset", preset]
    for name, value in given.items():
        words += option(name, value)
    tasks = [task for task in benchmark.tasks if any(r["task"] == task.key for r in results)]
    if len(tasks) < len(benchmark.tasks):
        words += ["--tasks", ",".join(task.key for task in tasks)]
    if tuple(rows) != benchmark.choose_rows(None):
        words += ["--methods", ",".join(row.name for row in rows)]
    seeds = sorted({result["seed"] for result in results})
    return shlex.join([*words, "--seeds", ",".join(map(str, seeds))])
