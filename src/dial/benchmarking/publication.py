"""The files of a grid that people read, made anew from the results."""

from collections.abc import Sequence
from pathlib import Path

from dial import files
from dial.benchmarking import figure, formats, page
from dial.benchmarking.grids import Benchmark, Row, Task
from dial.benchmarking.repetition import repeat_command
from dial.benchmarking.results import Result
from dial.benchmarking.tables import Table, tabulate


class Publication:
    """Tables, the figure of an ablation, and the page, in the folder of a grid."""

    def __init__(
        self, out: Path, benchmark: Benchmark, *, rows: Sequence[Row], tasks: Sequence[Task]
    ) -> None:
        self.out, self.benchmark, self.rows, self.tasks = out, benchmark, rows, tasks

    def table(self, results: Sequence[Result]) -> Table:
        """Of what there is, with lines and columns for what was asked for."""
        return tabulate(self.benchmark, results, rows=self.rows, tasks=self.tasks)

    def write_tables(self, results: Sequence[Result]) -> None:
        """`table.md`, `table.csv` and `table.tex`: cheap enough to be written after each cell."""
        self._write_tables(self.table(results), repeat_command(self.benchmark, results))

    def write_all(self, results: Sequence[Result]) -> None:
        """The tables, `figure.svg` and `figure.png` of an ablation, and `index.html`."""
        table, command = self.table(results), repeat_command(self.benchmark, results)
        self._write_tables(table, command)
        images = figure.render(table) if self.benchmark.ablation else {}
        for kind, content in images.items():
            files.write_bytes(self.out / f"figure.{kind}", content)
        made = page.render(table, results, command=command, svg=images.get("svg"))
        files.write_text(self.out / "index.html", made)

    def _write_tables(self, table: Table, command: str | None) -> None:
        about = f"Accuracy on the target in percent at the last epoch, {table.over()}"
        about += f": `{command}`" if command else "."
        below = "\n\n".join([about, *table.notes()])
        files.write_text(self.out / "table.md", f"{formats.markdown(table)}\n{below}\n")
        files.write_text(self.out / "table.csv", formats.as_csv(table))
        files.write_text(self.out / "table.tex", formats.latex(table))
