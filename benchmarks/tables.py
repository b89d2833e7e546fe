"""Cells and rows of the tables that the scripts write."""

import math
from collections.abc import Sequence


def row(cells: Sequence[str]) -> str:
    """Returns a row of a Markdown table.

    >>> row(["a", "b"])
    '| a | b |'
    """
    return f"| {' | '.join(cells)} |"


def rule(columns: int) -> str:
    """Returns the line below the heads of a Markdown table."""
    return row(["---"] * columns)


def number(value: float | None, digits: int = 4) -> str:
    """Returns a number with so many decimals, and a dash if there is none.

    >>> number(0.5, 1), number(None), number(math.nan)
    ('0.5', '-', '-')
    """
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"
