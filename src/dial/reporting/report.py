"""The report of a finished run: its records in, one self-contained HTML page out."""

import os
from pathlib import Path
from typing import Any

from dial import files
from dial.deployment.runs import Run, locate, read_records
from dial.errors import DialError, missing_extra
from dial.reporting.record import load
from dial.training.run_folder import read_config

NAME = "report.html"

RunOrFolder = Run | str | os.PathLike[str]


def report(
    run: RunOrFolder,
    out: str | os.PathLike[str] | None = None,
    *,
    baseline: RunOrFolder | None = None,
) -> Path:
    """Write the page about a finished run.

    Args:
        run: a run, or its folder.
        out: where to write the page; by default `report.html` in the run's folder.
        baseline: a finished run on the same target, whose predictions are shown as those without
            adaptation.

    Returns the page's path.

    Raises:
        DialError: the run does not exist, is not finished, or has no record for a report; the
            baseline has another target or other classes; a package of the extra is missing.
    """
    folder = locate(_folder(run), None)
    result, history = read_records(folder)
    record = load(folder)
    if baseline is not None:
        place = locate(_folder(baseline), None)
        other, _ = read_records(place)
        without = f"another run on the same images: {other['method']}, seed {other['seed']}"
        record = record.against(load(place), without=without)
    config = read_config(folder / "config.json")
    try:
        from jinja2 import UndefinedError

        from dial.reporting.page import render

        text = render(record, config=config, result=result, history=history, folder=folder)
    except ImportError as error:
        raise missing_extra(error, "report") from error
    except UndefinedError as error:
        raise DialError(
            wanted=f"all that a report shows in the files of the run in {folder}",
            got=f"files without some of it ({error})",
            fix="make the run again with this version of dial, in another folder",
        ) from error
    path = Path(out or folder / NAME)
    files.write_text(path, text)
    return path


def _folder(run: Any) -> Path:
    return Path(getattr(run, "folder", run))
