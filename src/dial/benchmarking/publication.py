"""The files of a grid that people read, made anew from the results."""

from collections.abc import Sequence
from pathlib import Path

from dial import files
from dial.benchmarking import tables
from dial.benchmarking.grids import Benchmark, Row, Task
from dial.benchmarking.results import Result


class Files:
    """`table.md`, `table.csv` and `table.tex` in the folder of a grid."""

    def __init__(
        self, out: Path, benchmark: Benchmark, *, rows: Sequence[Row], tasks: Sequence[Task]
    ) -> None:
        self.out, self.benchmark, self.rows, self.tasks = out, benchmark, rows, tasks

    def table(self, results: Sequence[Result]) -> tables.Table:
        """Of what there is, with lines and columns for what was asked for."""
        return tables.tabulate(self.benchmark, results, rows=self.rows, tasks=self.tasks)

    def write_table(self, results: Sequence[Result]) -> None:
        """What is cheap enough to be written after each cell."""
        table = self.table(results)
        files.write_text(self.out / "table.md", tables.markdown(table))
        files.write_text(self.out / "table.csv", tables.as_csv(table))
        files.write_text(self.out / "table.tex", tables.latex(table))

    def write_all(self, results: Sequence[Result]) -> None:
        """Everything, when the grid is through."""
        self.write_table(results)
