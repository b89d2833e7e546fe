"""A benchmark's table for reading in a terminal, and as plain columns in a pipe."""

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dial.benchmarking.running import Outcome
from dial.benchmarking.tables import Table, Value

_SHORTEST = 12  # characters that stay of a method's name


def print_outcome(outcome: Outcome, out: Path, *, console: Console | None = None) -> None:
    """Print the table, the best of each column in bold, and where the files are."""
    console = console or Console()
    table = outcome.table
    room = console.width if console.is_terminal else math.inf  # a pipe has no width of its own
    lines = [
        Text(table.title, style="bold"),
        Text("Accuracy on the target in percent, last epoch."),
        *_lines(table, room),
        *map(Text, table.notes()),
        Text(f"Runs, results and tables: {out}"),
    ]
    for line in lines:
        console.print(line, soft_wrap=True)


def _lines(table: Table, room: float) -> list[Text]:
    """The table, in a narrow terminal without its deviations and with shorter names."""
    for with_deviation, gap in ((True, 2), (True, 1), (False, 2), (False, 1)):
        rows = _rows(table, with_deviation=with_deviation)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        excess = sum(widths) + gap * (len(widths) - 1) - room
        if excess <= 0:
            break
    widths[0] -= int(max(0, min(excess, widths[0] - _SHORTEST)))
    for row in rows:
        for place, cell in enumerate(row):
            number = place >= len(row) - len(table.columns)
            cell.align("right" if number else "left", widths[place])
    head, *rest = (Text(" " * gap).join(row) for row in rows)
    lines = [Text(), head, Text("─" * len(head))]
    body = iter(rest)
    for block in table.blocks():
        lines += [Text(block[0].network, style="italic"), *islice(body, len(block)), Text()]
    if not with_deviation and len(table.seeds) > 1:
        lines.append(Text("Means over seeds; their deviations are in table.md."))
    return lines


def _rows(table: Table, *, with_deviation: bool) -> list[Sequence[Text]]:
    """The heads, and the cells of each line."""

    def cell(value: Value | None) -> Text:
        if value is None:
            return Text("-")
        return Text(value.text(with_deviation=with_deviation), "bold" if value.best else "")

    rows: list[Sequence[Text]] = [[Text(head) for head in table.heads()]]
    for line in table.lines:
        names = [Text(name, overflow="ellipsis") for name in table.names(line)]
        rows.append([*names, *map(cell, line.values)])
    return rows
