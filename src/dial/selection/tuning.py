"""Choosing a setting of the method by a validator, without labels of the target.

Each value of a grid is a trial: an ordinary run in `trials/FIELD-VALUE`, with a small record
beside it, `FIELD-VALUE.json`, of its scores by epoch and of its end. Trials run in an order drawn
with the run's seed. A killed search can be resumed, and several processes can share one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from dial import files, methods
from dial.console import Reporter, print_listing
from dial.data import holdout
from dial.data.domain import Domains
from dial.errors import DialError
from dial.files.records import read_json
from dial.selection import outputs, validators
from dial.selection.outputs import Outputs
from dial.selection.pruning import Pruned, Standing, should_stop
from dial.selection.validators import Validator
from dial.training import grid, run_folder
from dial.training.cluster import Cluster
from dial.training.engine import Interrupted, NotFiniteError
from dial.training.run_files import read_result
from dial.training.settings import AUTO, Settings, name_of

GRID = (0.0, 0.03, 0.1, 0.3, 1.0)
FINISHED = "finished"
"""The outcome of a trial that ended well; others are named where they arise."""

Train = Callable[..., object]
"""`train(settings, folder, resume=True, attempt=Attempt(...))`."""
Judge = Callable[[int, Callable[[], Outputs]], None]


@dataclass(frozen=True)
class Attempt:
    """What the training of a trial needs to know about its search."""

    title: str
    judge: Judge | None
    """Called after each epoch with its number and a function that returns the outputs; raises
    `Pruned`. None if trials are not stopped early."""


class Record(TypedDict, total=False):
    """What is kept of a trial; there is an outcome once it is over."""

    epochs: dict[str, Standing]
    score: float | None
    outcome: str
    error: str
    seconds: float


@dataclass(frozen=True)
class Trial:
    """One value of the field: a cell of the grid."""

    value: float
    title: str
    folder: Path
    record: Path

    def read(self) -> dict[str, Any]:
        """Returns the record: score, outcome and seconds of a trial that is over, and epochs."""
        record: dict[str, Any] = {"epochs": {}}
        try:
            return record | (read_json(self.record, Record) if self.record.exists() else {})
        except (OSError, ValueError) as error:
            raise DialError(
                wanted=f"the record of a trial in {self.record}",
                got=f"a damaged file ({error})",
                fix="remove it, and resume the search with its command and --resume",
            ) from error

    def update(self, **entries: Any) -> None:
        """Change the record; only the process that holds the trial's lock may do so."""
        files.write_json(self.record, self.read() | entries)

    def is_over(self) -> bool:
        """Returns whether it has finished, failed, or been stopped early."""
        return "outcome" in self.read()


@dataclass(frozen=True)
class Search:
    """A field of the method, the validator to choose its value by, and all settings."""

    field: str
    validator: str | Validator
    settings: Settings

    def trials(self, home: Path) -> list[Trial]:
        """Returns the trials in the order in which they run."""
        values = np.random.default_rng(self.settings.seed).permutation(GRID).tolist()
        trials = []
        for number, value in enumerate(values, start=1):
            title = f"trial {number} of {len(values)}: {self.field} {value:g}"
            path = home / f"{self.field}-{value:g}"
            trials.append(Trial(value, title, path, path.with_name(f"{path.name}.json")))
        return trials

    def with_value(self, value: float | str) -> Settings:
        """Returns the settings with a value of the field."""
        return replace(self.settings, options=self.settings.options | {self.field: value})


def plan(chosen: Settings, *, tune: str | None, validator: str | Validator | None) -> Search | None:
    """Returns the search that is asked for by a field's name, or by `auto` as its value."""
    numeric = [f.name for f in fields(methods.kind(chosen.method)) if isinstance(f.default, float)]
    auto = [name for name in numeric if chosen.options.get(name) == AUTO]
    names = list(dict.fromkeys([*auto, *([tune] if tune else [])]))
    if not names:
        if validator is not None:
            raise DialError(
                wanted="a setting to choose with the validator",
                got=f"the validator {validators.name_of(validator)} alone",
                fix="add --entropy auto, or --tune and the name of a setting",
            )
        return None
    if len(names) > 1 or names[0] not in numeric:
        raise DialError(
            wanted=f"one numeric setting of the method {name_of(chosen.method)} to tune "
            f"({', '.join(numeric) or 'it has none'})",
            got=", ".join(names),
            fix="tune one of those, and give the others a value",
        )
    judge = validator or validators.DEFAULT
    validators.needs_held_out(judge)  # raises for an unknown name
    judge = validators.name_of(judge) if isinstance(judge, str) else judge
    search = Search(names[0], judge, chosen)
    return replace(search, settings=search.with_value(AUTO))


def tune(
    search: Search,
    folder: Path,
    domains: Domains,
    *,
    train: Train,
    resume: bool,
    prune: bool,
    quiet: bool,
    about: Mapping[str, Any],
    cluster: Cluster | None = None,
    started: float,
) -> None:
    """Run all trials and copy the run that the validator prefers into the folder.

    With `resume`, other processes may work on the same search; with `prune`, trials may be
    stopped early; on a `cluster`, trials are its tasks. `about` is what a run's config.json says
    beside its settings and domains; `started` is when the user began to wait, on the clock of
    `time.perf_counter`. Raises `Interrupted` if the user stops it.
    """
    counts = [holdout.count(source.labels, search.settings.holdout) for source in domains[0]]
    count, images = max(counts), sum(len(source.images) for source in domains[0])
    reason = f"{count} to hold out of the source's {images}"
    validators.check(search.validator, held_out=count >= holdout.MIN_HELD_OUT, reason=reason)
    _check_folder(folder, search, resume=resume)
    lock, result = folder / "trials" / "search.lock", folder / "result.json"
    trials = search.trials(lock.parent)
    before = sum(trial.read()["seconds"] for trial in trials if trial.is_over())
    prune = prune and search.settings.steps is None and search.settings.epochs > 1
    run = partial(_run, search=search, trials=trials if prune else (), train=train)
    reporter = Reporter(quiet=quiet or cluster is None, title="")
    ended = partial(_show_end, search=search, reporter=reporter)
    try:
        with grid.held(lock):
            _begin(folder, search, domains, about)
        if not result.exists():
            if cluster is not None:
                reporter.say(f"{len(trials)} trials on Ray, up to {cluster.at_once} at once")
            grid.run_grid(
                trials,
                run,
                wait=True,
                keep_going=False,
                finished=Trial.is_over,
                report=ended,
                cluster=cluster,
            )
        with grid.held(lock):
            if not result.exists():
                waited = before + time.perf_counter() - started
                _install(folder, search, trials, seconds=waited)
    except KeyboardInterrupt:
        raise Interrupted from None
    if not quiet:
        _show(_result_of(folder), search, folder)


def _check_folder(folder: Path, search: Search, *, resume: bool) -> None:
    """Refuse a folder that holds a run or another search."""
    run = run_folder.holds_run(folder)
    if not resume and (run or (folder / "trials").exists()):
        raise run_folder.already_there(folder)
    if run and not (folder / "trials" / "search.json").exists():
        raise DialError(
            wanted=f"a search for {search.field} in {folder}",
            got="a run whose settings were given",
            fix="name another --out",
        )


def _begin(folder: Path, search: Search, domains: Domains, about: Mapping[str, Any]) -> None:
    """Write the search to search.json, or check that the one there is the same."""
    path, name = folder / "trials" / "search.json", validators.name_of(search.validator)
    identity = {"tune": search.field, "validator": name, "grid": list(GRID)}
    config = run_folder.describe(search.settings, domains, **about) | {"search": identity}
    if path.exists():
        begun = run_folder.read_config(path)
        if "search" in begun:
            begun["search"]["validator"] = validators.name_of(begun["search"]["validator"])
        run_folder.check_same(folder, begun, config)
    else:
        files.write_json(folder / "config.json", config)
        files.write_json(path, config)


def _run(trial: Trial, *, search: Search, trials: Sequence[Trial], train: Train) -> None:
    """Run or resume a trial and record its end; it stops early if it is behind the `trials`."""
    judge = partial(_judge, trial=trial, search=search, trials=trials) if trials else None
    started, settings = time.perf_counter(), search.with_value(trial.value)
    end: dict[str, Any] = {"score": None, "outcome": FINISHED}
    try:
        train(settings, trial.folder, resume=True, attempt=Attempt(trial.title, judge))
        end["score"] = validators.score(search.validator, outputs.load(trial.folder))
    except Pruned as stop:
        epoch, end["score"] = stop.args
        end["outcome"] = f"stopped at epoch {epoch}"
    except (NotFiniteError, validators.NoScoreError) as error:
        end |= {"outcome": "failed", "error": str(error)}
    end["seconds"] = round(time.perf_counter() - started, 1)
    if end["outcome"] == FINISHED:  # those of all processes that trained it
        end["seconds"] = _result_of(trial.folder)["seconds"]
    trial.update(**end)


def _judge(
    epoch: int,
    look: Callable[[], Outputs],
    *,
    trial: Trial,
    search: Search,
    trials: Sequence[Trial],
) -> None:
    """Stop the trial by `Pruned` at an epoch where it is clearly behind the others."""
    if not search.settings.epochs / 2 <= epoch < search.settings.epochs:
        return  # too early to compare, or over anyway
    run, key = look(), str(epoch)
    score = validators.score(search.validator, run)
    standing = Standing(score=score, correct=validators.correct_on_source(run))
    trial.update(epochs=trial.read()["epochs"] | {key: standing})
    records = [other.read()["epochs"] for other in trials if other != trial]
    if should_stop(standing, [record[key] for record in records if key in record]):
        raise Pruned(epoch, score)


def _keeping_the_source(trials: Sequence[Trial]) -> dict[float, bool]:
    """Returns whether a trial keeps the source, by value, for those that finished."""
    finished = [trial for trial in trials if trial.read()["outcome"] == FINISHED]
    correct = [validators.correct_on_source(outputs.load(trial.folder)) for trial in finished]
    values = [trial.value for trial in finished]
    return dict(zip(values, validators.keep_the_source(correct), strict=True))


def _choose(scores: Mapping[float, float], search: Search, trials: Sequence[Trial]) -> float:
    """Returns the smallest value whose score is as good as the best."""
    parts = {
        trial.value: validators.score_in_parts(search.validator, outputs.load(trial.folder))
        for trial in trials
        if trial.value in scores
    }
    values = sorted(scores)
    equal = validators.as_good_as_the_best([scores[v] for v in values], [parts[v] for v in values])
    return next(value for value, good in zip(values, equal, strict=True) if good)


def _install(folder: Path, search: Search, trials: Sequence[Trial], *, seconds: float) -> None:
    """Copy the best run that keeps the source into the folder; its result last, as a run does.

    Of runs that score equally well the one with the smallest value is taken. No label of the
    target is used. `seconds` are those of the whole search.
    """
    records = {trial.value: trial.read() for trial in trials}
    sound = _keeping_the_source(trials)
    if not sound:
        error = next((r["error"] for r in records.values() if "error" in r), "")
        raise DialError(
            wanted=f"a value of {search.field} with which training ends well",
            got=f"none of {', '.join(f'{value:g}' for value in GRID)} ({error})",
            fix="try a lower --lr, in another --out",
        )
    for value, keeps in sound.items():
        records[value]["outcome"] = FINISHED if keeps else "worse on the source"
    scores = {value: records[value]["score"] for value, keeps in sound.items() if keeps}
    best = _choose(scores, search, trials)
    for value in scores:
        if records[value]["score"] > records[best]["score"]:
            records[value]["outcome"] = "not clearly better"
    records[best]["outcome"] = "chosen"
    columns = ("score", "outcome", "seconds")
    table = [{search.field: v} | {c: records[v][c] for c in columns} for v in sorted(records)]
    home = next(trial.folder for trial in trials if trial.value == best)
    choice = {"chosen": {search.field: best, "validator": validators.name_of(search.validator)}}
    own = "config.json", "result.json", "timing.json", "report.html"
    for path in sorted(home.iterdir()):
        if path.name[0] != "." and path.name not in own:
            files.copy(path, folder / path.name)
    files.write_json(folder / "config.json", run_folder.read_config(home / "config.json") | choice)
    result = _result_of(home)
    result |= {"seconds": round(seconds, 3), **choice, "trials": table}
    files.write_json(folder / "result.json", result)


def _result_of(folder: Path) -> dict[str, Any]:
    """Returns the result of a trial, or of the whole search."""
    try:
        return read_result(folder)
    except (OSError, ValueError) as error:
        raise DialError(
            wanted=f"the result of a run in {folder}",
            got=f"a damaged result.json ({error})",
            fix="remove it, and resume the search with its command and --resume",
        ) from error


def _show_end(outcome: grid.Outcome[Trial], *, search: Search, reporter: Reporter) -> None:
    """Print how a trial on a cluster ended, whose own progress is not seen here."""
    end = outcome.cell.read()
    words = [outcome.cell.title, end["outcome"], f"{end['seconds']:.0f} s"]
    if end["score"] is not None:
        words.append(f"{validators.name_of(search.validator)} {end['score']:.4f}")
    reporter.say("  ".join(words))


def _show(result: dict[str, Any], search: Search, folder: Path) -> None:
    """Print the table of trials and the chosen run's result."""
    formats = {search.field: "g", "score": ".4f", "outcome": "", "seconds": ".0f"}
    titles = {"score": validators.name_of(search.validator)}
    rows = [
        {titles.get(name, name): _shown(row.get(name), form) for name, form in formats.items()}
        for row in result.get("trials", ())
    ]
    reporter = Reporter(quiet=False, title="")
    print_listing(rows, console=reporter.console)
    reporter.finished(result, folder)


def _shown(value: Any, form: str) -> str:
    """Returns a cell of the table; the file may have any value there."""
    return format(value, form) if isinstance(value, float) else str("" if value is None else value)
