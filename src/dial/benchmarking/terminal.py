"""A benchmark's table for reading in a terminal, and as plain columns in a pipe."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dial.benchmarking.running import Outcome


def print_outcome(outcome: Outcome, out: Path, *, console: Console | None = None) -> None:
    """Print the table, the best of each column in bold, and where the files are."""
    console = console or Console()
    table = outcome.table
    if not console.is_terminal:
        console.width = 200  # a pipe has no width of its own; columns are not to be cut
    shown = RichTable(
        title=f"{table.title}: accuracy on the target in percent, last epoch",
        title_justify="left",
        box=box.ROUNDED if console.is_terminal else box.SIMPLE,
    )
    heads = table.heads()[1:]  # the network is a line of its own, for narrow terminals
    for place, head in enumerate(heads):
        number = place >= len(heads) - len(table.columns)
        shown.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    for block in table.blocks():
        shown.add_row(Text(block[0].network, style="italic"))
        for line in block:
            values = [
                Text("-" if v is None else v.text(), style="bold" if v and v.best else "")
                for v in line.values
            ]
            shown.add_row(*map(Text, table.names(line)[1:]), *values)
        shown.add_section()
    console.print(shown)
    count = len(outcome.results)
    told = f"{count} finished {'cell' if count == 1 else 'cells'}; runs, results and tables: {out}"
    console.print(Text(told), soft_wrap=True)
