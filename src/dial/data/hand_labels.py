"""Tables of labels that were given by hand on the page of `dial label`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from dial.errors import DialError
from dial.files import printable

Purpose = Literal["score", "training"]
COLUMNS = (
    *("path", "label", "predicted", "peeked"),
    *("purpose", "population", "sample", "seed", "run"),
)
"""Of the table that the page saves; `label` is empty where a person could not tell."""
PEEKED = "yes"
"""In the column `peeked`: the prediction was seen before the answer."""

Row = Sequence[str]


@dataclass(frozen=True)
class HandLabels:
    """How the images of a table came to their labels."""

    purpose: Purpose
    """Images for scoring are drawn by chance, those for training are not."""
    population: int | None
    """The number of images that they were drawn from; None if the table does not say."""
    peeked: int
    """Images whose prediction was seen before they were labelled."""
    unsure: int
    """Images that the person could not tell the class of; the domain does not have them."""


def read_hand_labels(
    columns: Sequence[str], rows: Sequence[Row], file: Path
) -> tuple[HandLabels, list[int]] | None:
    """Returns how a table was made, and the rows of it that have a label.

    None for any other table: one without a column `purpose`.

    Raises:
        DialError: cells that the page does not write, or no label at all.
    """
    if "purpose" not in columns or "label" not in columns:
        return None
    cells = {
        name: [row[columns.index(name)].strip() if name in columns else "" for row in rows]
        for name in COLUMNS
    }
    labelled = [row for row, label in enumerate(cells["label"]) if label]
    if not labelled:
        raise DialError(
            wanted=f"a label in {printable(file)}",
            got=f"{len(rows)} images that could not be told",
            fix="label some on the page that `dial label` wrote",
        )
    (path, times), *_ = Counter(cells["path"]).most_common(1)
    if times > 1:
        raise DialError(
            wanted=f"each image once in {printable(file)}",
            got=f"{path} {times} times",
            fix="keep one of its lines",
        )
    purpose = _single(cells["purpose"], "purpose", get_args(Purpose), file)
    found = HandLabels(
        "training" if purpose == "training" else "score",
        _population(cells["population"], file),
        sum(cells["peeked"][row] == PEEKED for row in labelled),
        len(rows) - len(labelled),
    )
    return found, labelled


def _single(values: Sequence[str], column: str, allowed: Sequence[str], file: Path) -> str:
    """Returns the value that all rows of a column have."""
    first, *others = dict.fromkeys(values)
    if others or (allowed and first not in allowed):
        raise DialError(
            wanted=f"one {column} in {printable(file)}"
            + f" ({', '.join(allowed)})" * bool(allowed),
            got=", ".join(map(repr, (first, *others))),
            fix="keep tables of several pages apart, each as its page saved it",
        )
    return first


def _population(values: Sequence[str], file: Path) -> int | None:
    text = _single(values, "population", (), file)
    if text and not (text.isascii() and text.isdecimal() and int(text)):
        raise DialError(
            wanted=f"a number of images as population in {printable(file)}",
            got=repr(text),
            fix="save the table from its page again",
        )
    return int(text) if text else None
