"""The table as the command prints it."""

import io
from pathlib import Path

from rich.console import Console

from dial.benchmarking.grids import get
from dial.benchmarking.running import Outcome
from dial.benchmarking.tables import tabulate
from dial.benchmarking.terminal import print_outcome


def test_a_pipe_gets_every_column_whole() -> None:
    out = io.StringIO()
    table = tabulate(get("office31-ablation"), [])
    print_outcome(Outcome(table, [], {}), Path("runs"), console=Console(file=out, width=40))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "DIAL Laplacian BN yes 73.0 72.0 55.1 98.7 56.7 96.6 75.4" in lines
    assert "AlexNet (paper)" in lines
    assert "0 finished cells; runs, results and tables: runs" in out.getvalue()
