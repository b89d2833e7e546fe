"""A setting of the method chosen without the target's labels: trials over a grid, and a validator.

Trials are ordinary runs in folders of their own. Optuna deals out the grid and keeps the scores
in a journal, so a search that was killed goes on, and several processes can share one.
"""

import json
import os
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dial import files, methods
from dial.console import Reporter
from dial.data import holdout
from dial.data.domain import Domain, require_labels
from dial.errors import DialError
from dial.listing import print_listing
from dial.selection import validators
from dial.selection.trials import CHOSEN, Search, Train, Trials
from dial.training import run_folder
from dial.training.engine import Interrupted
from dial.training.locking import FileLock
from dial.training.settings import Settings

GRID = (0.0, 0.03, 0.1, 0.3, 1.0)
AUTO = "auto"
_WAIT = 0.5  # seconds, while other processes are at the last trials


def plan(chosen: Settings, *, tune: str | None, validator: str | None) -> Search | None:
    """The search that was asked for: by a field's name, or by `auto` as the value of one.

    Raises:
        DialError: a field that the method does not have, more than one, an unknown validator, or
            a validator without anything to choose.
    """
    own = fields(methods.kind(chosen.method))
    numeric = [f.name for f in own if isinstance(f.default, float)]
    auto = [name for name in numeric if chosen.options.get(name) == AUTO]
    asked = list(dict.fromkeys([*auto, *([tune] if tune else [])]))
    if not asked:
        if validator is not None:
            raise DialError(
                wanted="a setting to choose with the validator",
                got=f"the validator {validator} alone",
                fix="add --entropy auto, or --tune and the name of a setting",
            )
        return None
    if len(asked) > 1 or asked[0] not in numeric:
        raise DialError(
            wanted=f"one numeric setting of the method {chosen.method} to tune "
            f"({', '.join(numeric) or 'it has none'})",
            got=", ".join(asked),
            fix="tune one of those, and give the others a value",
        )
    name = validator or validators.DEFAULT
    validators.needs_held_out(name)  # to hear of a name that is none
    base = replace(chosen, options=chosen.options | {asked[0]: AUTO})
    return Search(asked[0], name, base, GRID)


def _held(source: Domain, chosen: Settings) -> int:
    """How many images of the source are there to be held out."""
    return holdout.count(require_labels(source), chosen.holdout)


def tune(
    search: Search,
    folder: Path,
    domains: tuple[Domain, Domain],
    *,
    train: Train,
    resume: bool,
    prune: bool,
    quiet: bool,
) -> None:
    """Make all trials and put the run that the validator prefers into the folder.

    Args:
        search: what is chosen, and how.
        folder: the run's; its trials are in `trials` there.
        domains: source and target.
        train: makes one trial.
        resume: go on with the search in the folder, also beside other processes that do.
        prune: whether trials may be stopped early; only where there are epochs to compare.
        quiet: show nothing.

    Raises:
        DialError: a folder that holds something else, a validator that cannot judge here, or no
            trial that came to an end.
        Interrupted: asked to stop; the same call with `resume` goes on.
    """
    held = _held(domains[0], search.settings)
    told = f"{held} to hold out of the source's {len(domains[0].images)}"
    validators.check(search.validator, held_out=held >= holdout.LEAST, reason=told)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise DialError(
            wanted="one process for each trial",
            got="torchrun, whose processes share every batch",
            fix="run the command itself several times at once, with --resume",
        )
    lock = FileLock(folder / "trials" / "search.lock")
    _refuse(folder, search, resume=resume)
    try:
        with lock.held():
            _begin(folder, search, domains)
        several = search.settings.steps is None and search.settings.epochs > 1
        trials = Trials(search, folder / "trials", prune=prune and several)
        while not (folder / "result.json").exists():
            with lock.held():
                work = trials.next()
                if work is None and trials.over:
                    _install(folder, trials)
            if work is not None:
                try:
                    trials.attend(work, train=train)
                finally:
                    work.lock.release()
            elif not trials.over:
                time.sleep(_WAIT)
    except KeyboardInterrupt:
        raise Interrupted from None
    if not quiet:
        _show(json.loads((folder / "result.json").read_text()), search, folder)


def _refuse(folder: Path, search: Search, *, resume: bool) -> None:
    """Refuse a folder that holds a run or a search, unless it is to be gone on with."""
    run = run_folder.came_to_something(folder)
    if not resume and (run or (folder / "trials").exists()):
        raise run_folder.taken(folder)
    if run and not (folder / "trials" / "search.json").exists():
        raise DialError(
            wanted=f"a search for {search.field} in {folder}",
            got="a run whose settings were given",
            fix="name another --out",
        )


def _begin(folder: Path, search: Search, domains: tuple[Domain, Domain]) -> None:
    """Note what is searched, or check that it is this."""
    path = folder / "trials" / "search.json"
    config = run_folder.describe(search.settings, domains) | {"search": search.to_dict()}
    if path.exists():
        run_folder.check_same(folder, run_folder.read_config(path), config)
    else:
        files.write_json(folder / "config.json", config)
        files.write_json(path, config)


def _install(folder: Path, trials: Trials) -> None:
    """Put the chosen trial's run into the folder; its result last, as a run does."""
    search, table = trials.search, trials.table()
    best = next(row[search.field] for row in table if row["outcome"] == CHOSEN)
    home = trials.home / search.name(best)
    chosen = {"chosen": {search.field: best, "validator": search.validator}}
    for path in sorted(home.iterdir()):
        if path.name not in ("config.json", "result.json", "report.html"):
            files.copy(path, folder / path.name)
    files.write_json(folder / "config.json", run_folder.read_config(home / "config.json") | chosen)
    result = json.loads((home / "result.json").read_text())
    files.write_json(folder / "result.json", result | chosen | {"trials": table})


def _show(result: dict[str, Any], search: Search, folder: Path) -> None:
    """The table of trials, and the chosen run's result."""
    rows = []
    for trial in result["trials"]:
        score, seconds = trial["score"], trial["seconds"]
        rows.append(
            {
                search.field: f"{trial[search.field]:g}",
                search.validator: "" if score is None else f"{score:.4f}",
                "outcome": trial["outcome"],
                "seconds": "" if seconds is None else f"{seconds:.0f}",
            }
        )
    reporter = Reporter(quiet=False, title="")
    print_listing(rows, console=reporter.console)
    reporter.finished(result, folder)
