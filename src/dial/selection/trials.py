"""The trials of a search: dealt out by Optuna, each an ordinary run, each made by one process."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from dial.errors import DialError
from dial.selection import outputs, validators
from dial.selection.outputs import Outputs
from dial.training.engine import NotFiniteError
from dial.training.locking import FileLock
from dial.training.settings import Settings

CHOSEN = "chosen"
"""The outcome of the trial that the search was for."""
_OTHERS = 2  # trials that must have come as far, before one is stopped for being behind them
_CLEARLY = 0.05  # of their median, that a trial must at least be behind


@dataclass(frozen=True)
class Attempt:
    """What a trial's training is told: its name, and whom to show outputs at the end of epochs."""

    title: str
    judge: Callable[[int, Callable[[], Outputs]], None] | None
    """Gets the epoch and a function that gives the outputs; None where nothing is stopped."""


class Train(Protocol):
    """Trains with some settings into a folder, or goes on with what is there."""

    def __call__(
        self, chosen: Settings, folder: Path, *, resume: bool, attempt: Attempt | None
    ) -> object:
        """Train to the end."""


@dataclass(frozen=True)
class Search:
    """What is looked for: the field of the method, in which grid, by which validator."""

    field: str
    validator: str
    settings: Settings
    grid: tuple[float, ...]

    def with_value(self, value: float) -> Settings:
        """The settings of one trial."""
        return replace(self.settings, options=self.settings.options | {self.field: value})

    def name(self, value: float) -> str:
        """What a trial and its folder are called."""
        return f"{self.field}-{value:g}"

    def to_dict(self) -> dict[str, Any]:
        """What makes it this search, beside its settings, for JSON."""
        return {"tune": self.field, "validator": self.validator, "grid": list(self.grid)}


class _Grid(optuna.samplers.GridSampler):
    """The grid in an order that the seed decides; the end of it is ours to notice."""

    def after_trial(self, *_: Any) -> None:
        """Nothing: Optuna's own stops a loop of Optuna's, which there is none of."""


@dataclass
class Work:
    """A trial that is this process's."""

    trial: Any
    value: float
    lock: FileLock


class Trials:
    """The trials of a search, as Optuna keeps them."""

    def __init__(self, search: Search, home: Path, *, prune: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.search, self.home, self._prune = search, home, prune
        # Its own locks outlive a process that dies with one.
        lock: Any = FileLock(home / "journal.lock")
        backend = JournalFileBackend(str(home / "journal.log"), lock_obj=lock)
        self._study = optuna.create_study(
            study_name="dial",
            storage=JournalStorage(backend),
            sampler=_Grid({search.field: list(search.grid)}, seed=search.settings.seed),
            direction="maximize",
            load_if_exists=True,
        )

    def _dealt(self) -> list[Any]:
        """Trials that have a place in the grid, by their numbers."""
        return [t for t in self._study.get_trials() if "grid_id" in t.system_attrs]

    @property
    def over(self) -> bool:
        """Whether the whole grid is done."""
        dealt = self._dealt()
        return len(dealt) == len(self.search.grid) and all(t.state.is_finished() for t in dealt)

    def next(self) -> Work | None:
        """A trial that nobody is at: one whose process died, or else a new one."""
        for old in self._study.get_trials(states=(TrialState.RUNNING,)):
            if "grid_id" not in old.system_attrs:  # died before it got its place in the grid
                self._study.tell(old.number, state=TrialState.FAIL)
                continue
            work = self._take(old)
            if work is not None:
                return work
        if len(self._dealt()) == len(self.search.grid):
            return None
        return self._take(self._study.ask())

    def _take(self, found: Any) -> Work | None:
        trial = optuna.trial.Trial(self._study, found._trial_id)
        value = float(trial.suggest_categorical(self.search.field, self.search.grid))
        lock = FileLock(self.home / f"{self.search.name(value)}.lock")
        if not lock.acquire(wait=False):
            return None
        if self._study.get_trials()[trial.number].state.is_finished():  # just now, by another
            lock.release()
            return None
        return Work(trial, value, lock)

    def attend(self, work: Work, *, train: Train) -> None:
        """Make a trial, or the rest of it, and tell its score."""
        name, number = self.search.name(work.value), work.trial.number
        place = len([t for t in self._dealt() if t.number <= number])
        title = f"trial {place} of {len(self.search.grid)}: {self.search.field} {work.value:g}"
        judge = self._judge(work.trial) if self._prune else None
        started = time.perf_counter()
        home = self.home / name
        told: dict[str, Any] = {}
        try:
            train(
                self.search.with_value(work.value), home, resume=True, attempt=Attempt(title, judge)
            )
            told["values"] = validators.score(self.search.validator, outputs.load(home))
            seconds = json.loads((home / "result.json").read_text())["seconds"]
        except optuna.TrialPruned:
            told["state"] = TrialState.PRUNED
            seconds = round(time.perf_counter() - started, 1)
        except (NotFiniteError, validators.NoScoreError) as error:
            told["state"] = TrialState.FAIL
            seconds = round(time.perf_counter() - started, 1)
            work.trial.set_user_attr("error", str(error))
        work.trial.set_user_attr("seconds", seconds)
        self._study.tell(number, **told)

    def _judge(self, trial: Any) -> Callable[[int, Callable[[], Outputs]], None]:
        """Stops a trial at an epoch where it is clearly behind the others."""

        def judge(epoch: int, look: Callable[[], Outputs]) -> None:
            epochs = self.search.settings.epochs
            if not epochs / 2 <= epoch < epochs:
                return  # too early to tell, or over anyway
            found = look()
            value = validators.score(self.search.validator, found)
            right = validators.right_of_source(found)
            every = self._dealt()
            own = next(t for t in every if t.number == trial.number)
            if epoch not in own.intermediate_values:
                trial.set_user_attr(_right(epoch), right)
                trial.report(value, epoch)
            others = [
                t for t in every if t.number != trial.number and epoch in t.intermediate_values
            ]
            rights = [t.user_attrs[_right(epoch)] for t in others]
            sound = validators.keep_the_source([*rights, right])
            if right and sum(right) >= max(map(sum, rights), default=0):
                return  # the others' loss of the source is measured by this one
            ahead = [t.intermediate_values[epoch] for t, s in zip(others, sound, strict=False) if s]
            if is_behind(value, ahead):
                raise optuna.TrialPruned

        return judge

    def _sound(self) -> dict[float, bool]:
        """Of each value whose trial came to its end, whether it keeps the source."""
        finished = [t for t in self._dealt() if t.state == TrialState.COMPLETE]
        values = [float(t.params[self.search.field]) for t in finished]
        runs = [outputs.load(self.home / self.search.name(value)) for value in values]
        right = [validators.right_of_source(run) for run in runs]
        return dict(zip(values, validators.keep_the_source(right), strict=True))

    def _choose(self, sound: dict[float, bool]) -> float:
        """The best score of those that keep the source; of equal ones the smallest value."""
        if not sound:
            errors = [t.user_attrs.get("error", "") for t in self._dealt()]
            raise DialError(
                wanted=f"a value of {self.search.field} with which training ends well",
                got=f"none of {', '.join(f'{v:g}' for v in self.search.grid)} ({errors[0]})",
                fix="try a lower --lr, in another --out",
            )
        scores = {t.params[self.search.field]: t.value for t in self._dealt()}
        return max((value for value in sound if sound[value]), key=lambda v: (scores[v], -v))

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial, by the values of the field; nothing here knows a target's label.

        Raises:
            DialError: no trial came to an end.
        """
        sound = self._sound()
        best, rows = self._choose(sound), []
        for t in sorted(self._dealt(), key=lambda t: t.params[self.search.field]):
            value, epochs = t.params[self.search.field], sorted(t.intermediate_values)
            score, outcome = t.value, CHOSEN if value == best else "finished"
            if not sound.get(value, True):
                outcome = "worse on the source"
            if t.state == TrialState.PRUNED:
                score, outcome = t.intermediate_values[epochs[-1]], f"stopped at epoch {epochs[-1]}"
            elif t.state == TrialState.FAIL:
                score, outcome = None, "failed"
            seconds = t.user_attrs.get("seconds")
            row = {"score": score, "outcome": outcome, "seconds": seconds}
            rows.append({self.search.field: value, **row})
        return rows


def _right(epoch: int) -> str:
    """The attribute of a trial that holds which source images it had right after an epoch."""
    return f"right of the source at {epoch}"


def is_behind(value: float, others: Sequence[float]) -> bool:
    """Whether a score is clearly below the median of others at the same epoch.

    Clearly is further than the others are from each other, and than a twentieth of the median.

    >>> is_behind(0.5, [1.0, 1.1]), is_behind(0.96, [1.0, 1.1]), is_behind(0.5, [1.0])
    (True, False, False)
    """
    if len(others) < _OTHERS:
        return False
    middle = median(others)
    margin = max(max(others) - min(others), _CLEARLY * abs(middle))
    return value < middle - margin
