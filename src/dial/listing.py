"""What there is to choose from, as a table in a terminal and plain columns in a pipe."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_listing(rows: Sequence[Mapping[str, str]], *, console: Console | None = None) -> None:
    """Print rows that all have the same columns."""
    console = console or Console()
    table = Table(box=box.ROUNDED if console.is_terminal else None)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(value) for value in row.values()))
    console.print(table)
