"""The table as the command prints it."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dial.benchmarking.grids import Benchmark
from dial.benchmarking.running import Outcome
from dial.benchmarking.tables import tabulate
from dial.benchmarking.terminal import print_outcome

from .made_up import ABLATION, OFFICE, Results, result


def printed(benchmark: Benchmark, results: Results, **console: Any) -> list[str]:
    out = io.StringIO()
    outcome = Outcome(tabulate(benchmark, results), results, {})
    print_outcome(outcome, Path("runs"), console=Console(file=out, **console))
    return out.getvalue().splitlines()


def grid(benchmark: Benchmark, *, seeds: int, methods: str | None = None) -> Results:
    return [
        result(task.key, row.name, seed, 0.7 + seed / 10)
        for task in benchmark.tasks
        for row in benchmark.choose_rows(methods)
        for seed in range(seeds)
    ]


def test_a_pipe_gets_every_column_whole() -> None:
    lines = [
        " ".join(line.split()) for line in printed(ABLATION, grid(ABLATION, seeds=3), width=40)
    ]
    assert "DIAL Laplacian BN yes 73.0 72.0 55.1 98.7 56.7 96.6 75.4" in lines
    assert f"DIAL Anchored yes{' 80.0 ± 10.0' * 7}" in lines
    assert "AlexNet (paper)" in lines
    assert "Runs, results and tables: runs" in lines
    assert printed(ABLATION, [], width=40)


@pytest.mark.parametrize("benchmark", [ABLATION, OFFICE], ids=lambda b: b.name)
@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_is_not_overrun(benchmark: Benchmark, width: int) -> None:
    some = {"width": width, "force_terminal": True, "color_system": None}
    lines = printed(benchmark, grid(benchmark, seeds=3), **some)
    assert max(map(len, lines)) <= width
    row = next(line.split() for line in lines if line.startswith("DIAL"))
    values = ["80.0", "±", "10.0"] * 7 if width == 120 else ["80.0"] * 7
    assert row[-len(values) :] == values
    assert any("deviations are in table.md" in line for line in lines) == (width == 80)
    assert "digits_cnn (ours)" in lines


def test_only_names_are_shortened() -> None:
    some = {"width": 70, "force_terminal": True, "color_system": None}
    lines = printed(OFFICE, grid(OFFICE, seeds=1, methods="source_only_batch"), **some)
    assert max(map(len, lines)) <= 70
    row = next(line for line in lines if "…" in line)
    assert row.startswith("Source only, B")
    assert row.split()[-7:] == ["70.0"] * 7


def test_means_over_fewer_seeds_and_missing_cells_are_told() -> None:
    lines = printed(ABLATION, grid(ABLATION, seeds=2)[1:])
    assert "† 1 of 2 seeds." in lines
    cells = len(ABLATION.rows) * len(ABLATION.tasks) * 2
    assert f"{cells - 1} of {cells} cells are finished." in lines
