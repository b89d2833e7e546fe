"""How well each validator chooses the entropy weight, measured on data with known labels.

    python -m benchmarks.validators --out runs/validators --data DATA

trains the runs that are missing, `OUT/<task>/entropy-<value>/` over the grid of `--entropy auto`,
scores each with every validator without the target's labels, and writes `OUT/validators.md`: for
each task the scores and the true accuracy; for each validator how well it ranks the runs
(Spearman) and how many points its choice loses against the best run, among all runs and, like
`--entropy auto`, among those that keep the source; and the error of the label-free estimate. DATA
is the folder that contains `office31`; digits need no data:

    python -m benchmarks.validators --out runs/validators --tasks mnist-optdigits,optdigits-mnist

The same command resumes interrupted runs. `--steps 2` is to try the script itself.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dial
from dial.selection import accuracy, outputs, validators
from dial.selection.tuning import GRID

_PHOTOGRAPHS = {
    "backbone": "efficientnet_lite0",
    "image_size": 128,
    "batch_size": "32+16",
    "reference": "anchored",
    "frozen": (),
    "centroids": False,
    "start": "random",
}
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mnist-optdigits": ("digits:mnist", "digits:optdigits", {}),
    "optdigits-mnist": ("digits:optdigits", "digits:mnist", {}),
    "amazon-webcam": ("office31:amazon", "office31:webcam", _PHOTOGRAPHS | {"epochs": 2}),
    "dslr-amazon": ("office31:dslr", "office31:amazon", _PHOTOGRAPHS | {"epochs": 6}),
}


@dataclass(frozen=True)
class Measured:
    """One run: its scores, its estimated accuracy and its true accuracy."""

    value: float
    scores: dict[str, float | None]
    estimate: float | None
    accuracy: float
    correct: tuple[bool, ...] = ()
    """Whether each held-out source image is predicted correctly."""
    sound: bool = True
    """Whether it keeps the source, compared with the other runs."""


def measure(folder: Path, value: float) -> Measured:
    """Returns the figures of a finished run; None for scores that need a held-out source."""
    result = json.loads((folder / "result.json").read_text())
    saved = outputs.load(folder)
    scores = {
        name: None
        if saved.held_out is None and validators.needs_held_out(name)
        else validators.score(name, saved)
        for name in validators.names()
    }
    estimate = None if saved.held_out is None else accuracy.estimate(saved.held_out, saved.target)
    correct = tuple(validators.correct_on_source(saved))
    return Measured(value, scores, estimate, result["target_accuracy"], correct)


def with_soundness(runs: Sequence[Measured]) -> list[Measured]:
    """Returns the runs with `sound` set."""
    pairs = zip(runs, validators.keep_the_source([run.correct for run in runs]), strict=True)
    return [replace(run, sound=sound) for run, sound in pairs]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the rank correlation with ties at their mean rank; NaN if all values are equal."""
    ranks = [_ranks(np.asarray(values, dtype=float)) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return math.nan
    return float(np.corrcoef(np.array(ranks))[0, 1])


def _ranks(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    return [float((values < v).sum() + (values <= v).sum()) / 2 for v in values]


def points_lost(runs: Sequence[Measured], name: str) -> float:
    """Returns the points between the best run and the choice of `--entropy auto`."""
    return _lost([run for run in runs if run.sound], name, best=max(r.accuracy for r in runs))


def points_lost_among_all(runs: Sequence[Measured], name: str) -> float:
    """Returns the points between the best run and the choice without setting runs aside."""
    return _lost(runs, name, best=max(run.accuracy for run in runs))


def _lost(runs: Sequence[Measured], name: str, *, best: float) -> float:
    choice = max(runs, key=lambda run: (run.scores[name], -run.value))
    return 100 * (best - choice.accuracy)


def write_page(measured: dict[str, list[Measured]]) -> str:
    """Returns all tables as Markdown."""
    names = list(validators.names())
    lines = ["# Validators, measured", ""]
    for task, runs in measured.items():
        heads = ["entropy", *names, "keeps the source", "estimate", "true accuracy"]
        lines += [f"## {task}", "", _row(heads), _row(["---"] * len(heads))]
        for run in runs:
            scores = [_number(run.scores[name]) for name in names]
            shares = [_number(run.estimate, 3), _number(run.accuracy, 3)]
            sound = "yes" if run.sound else "no"
            lines.append(_row([f"{run.value:g}", *scores, sound, *shares]))
        lines.append("")
    lines += ["## Rank correlation with the true accuracy (Spearman)", ""]
    lines += _by_validator(measured, lambda runs, name: spearman(*_pairs(runs, name)), digits=2)
    lines += ["## Points of accuracy lost against the best run, choosing as `--entropy auto`", ""]
    lines += _by_validator(measured, points_lost, digits=1)
    lines += [
        "## Points of accuracy lost if no run is set aside",
        "",
    ]
    lines += _by_validator(measured, points_lost_among_all, digits=1)
    lines += ["## Error of the estimated accuracy, in points (estimate less truth)", ""]
    lines += [_row(["task", *(f"entropy {value:g}" for value in GRID)])]
    lines += [_row(["---"] * (len(GRID) + 1))]
    for task, runs in measured.items():
        errors = {
            run.value: None if run.estimate is None else 100 * (run.estimate - run.accuracy)
            for run in runs
        }
        lines.append(_row([task, *(_number(errors.get(value), 1) for value in GRID)]))
    return "\n".join(lines) + "\n"


def _pairs(runs: Sequence[Measured], name: str) -> tuple[list[float], list[float]]:
    return [run.scores[name] or 0.0 for run in runs], [run.accuracy for run in runs]


def _by_validator(measured: dict[str, list[Measured]], figure: Any, *, digits: int) -> list[str]:
    lines = [_row(["validator", *measured, "mean"]), _row(["---"] * (len(measured) + 2))]
    for name in validators.names():
        figures = [
            None if any(run.scores[name] is None for run in runs) else figure(runs, name)
            for runs in measured.values()
        ]
        numbers = [f for f in figures if f is not None and not math.isnan(f)]
        mean = float(np.mean(numbers)) if numbers else None
        lines.append(_row([name, *(_number(f, digits) for f in (*figures, mean))]))
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def main() -> None:
    """Train the runs that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", help="folder that contains office31")
    parser.add_argument("--tasks", default=",".join(TASKS), help="separated by commas")
    parser.add_argument("--steps", type=int, help="instead of each task's own")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    settings = {"steps": arguments.steps, "seed": arguments.seed, "data": arguments.data}
    settings |= {"report": False}
    measured: dict[str, list[Measured]] = {}
    for task in arguments.tasks.split(","):
        source, target, special = TASKS[task]
        measured[task] = []
        for value in GRID:
            folder = arguments.out / task / f"entropy-{value:g}"
            options = settings | special | {"entropy": value}
            dial.adapt(source, target, out=folder, resume=True, **options)
            measured[task].append(measure(folder, value))
            measured[task] = with_soundness(measured[task])
            page = write_page(measured)  # after each run, because all of them take long
            (arguments.out / "validators.md").write_text(page, encoding="utf-8")
    print(write_page(measured))


if __name__ == "__main__":
    main()
