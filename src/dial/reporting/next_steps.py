"""What to do with a finished run, as lines to copy into a terminal."""

import shlex
from pathlib import Path
from typing import NamedTuple

from dial.reporting.places import shareable


class Step(NamedTuple):
    """A line, and what it is for."""

    purpose: str
    line: str


def next_steps(folder: Path, *, measured: bool) -> list[Step]:
    """Returns what can be done next; words in capitals are the user's to replace.

    Args:
        folder: the run's, as the user names it; of an absolute path the lines have the last part.
        measured: whether the accuracy on the target is known.

    >>> next_steps(Path("my run"), measured=True)[0].line
    "dial predict 'my run' IMAGES"
    """
    run = shlex.quote(shareable(str(folder)))
    measure = Step("Measure the accuracy: label fifty images by hand", f"dial label {run}")
    return [
        *(() if measured else (measure,)),
        Step("Label other images of the same kind", f"dial predict {run} IMAGES"),
        Step("Use the network in other programs", f"dial export {run} model.onnx"),
        Step(
            "Go on from here when the camera or the place changes",
            f"dial adapt --from {run} NEW_IMAGES --out NEW",
        ),
    ]


def repeat(folder: Path) -> str:
    """Returns the line that makes the run again."""
    config = Path(shareable(str(folder))) / "config.json"
    return f"dial adapt --config {shlex.quote(str(config))} --out NEW"
