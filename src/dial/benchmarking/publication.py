"""The files of a grid that people read, made anew from the results."""

from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path

from dial import files
from dial.benchmarking import figure, page, repetition, tables
from dial.benchmarking.grids import Benchmark, Row, Task
from dial.benchmarking.results import Result


class Publication:
    """Tables, the figure of an ablation, and the page, in the folder of a grid."""

    def __init__(
        self, out: Path, benchmark: Benchmark, *, rows: Sequence[Row], tasks: Sequence[Task]
    ) -> None:
        self.out, self.benchmark, self.rows, self.tasks = out, benchmark, rows, tasks

    def table(self, results: Sequence[Result]) -> tables.Table:
        """Of what there is, with lines and columns for what was asked for."""
        return tables.tabulate(self.benchmark, results, rows=self.rows, tasks=self.tasks)

    def write_tables(self, results: Sequence[Result]) -> None:
        """`table.md`, `table.csv` and `table.tex`: cheap enough to be written after each cell."""
        table = self.table(results)
        seeds = repetition.seeds(results)
        of = f"mean and deviation over the seeds {seeds}" if "," in seeds else f"seed {seeds}"
        note = f"Accuracy on the target in percent at the last epoch, {of}"
        command = repetition.repeat_command(self.benchmark, results)
        note += f": `{command}`" if command else "."
        files.write_text(self.out / "table.md", f"{tables.markdown(table)}\n{note}\n")
        files.write_text(self.out / "table.csv", tables.as_csv(table))
        files.write_text(self.out / "table.tex", tables.latex(table))

    def write_all(self, results: Sequence[Result]) -> None:
        """The tables, `figure.svg` and `figure.png` of an ablation, and `index.html`."""
        self.write_tables(results)
        table = self.table(results)
        images = figure.render(table) if self.benchmark.ablation else {}
        for kind, content in images.items():
            files.write(self.out / f"figure.{kind}", methodcaller("write", content))
        made = page.render(self.benchmark, results, table, svg=images.get("svg"))
        files.write_text(self.out / "index.html", made)
