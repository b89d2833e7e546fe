"""How well each validator chooses, measured on data with known labels.

    python -m benchmarks.validators --out runs/validators --data DATA --tasks amazon-webcam
    python -m benchmarks.validators --out runs/validators --tasks mnist-optdigits --seeds 0,1,2

trains the runs that are missing, `OUT/<task>/seed-<seed>/<run>/`, with the default settings (at 128
px on Office-31): one for each entropy weight of `--entropy auto`, and one for each of some methods.
It scores each with every validator, without the target's labels, and writes `OUT/validators.md`:
for each task the scores and the true accuracy; for each validator how well it ranks the runs
(Spearman) and how many points its choice loses against the best run, called the oracle: chosen as
`--entropy auto` does (of those that keep the source the smallest weight that is as good as the
best), and simply by the highest score; what the choice between the candidates of a run loses
against the best of them; and the intervals of the label-free estimate.
DATA is the folder that contains `office31`; digits need no data.

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
from benchmarks.tables import number, row, rule
from dial.selection import accuracy, outputs, validators
from dial.selection.tuning import GRID

_PHOTOGRAPHS = {"image_size": 128}
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mnist-optdigits": ("digits:mnist", "digits:optdigits", {}),
    "optdigits-mnist": ("digits:optdigits", "digits:mnist", {}),
    "amazon-webcam": ("office31:amazon", "office31:webcam", _PHOTOGRAPHS),
    "webcam-amazon": ("office31:webcam", "office31:amazon", _PHOTOGRAPHS),
    "dslr-amazon": ("office31:dslr", "office31:amazon", _PHOTOGRAPHS),
}
POOLS: dict[str, dict[str, dict[str, Any]]] = {
    "entropy": {f"entropy-{value:g}": {"entropy": value} for value in GRID},
    "method": {
        f"method-{name}": {"method": name} for name in ("source_only", "adabn", "entropy_only")
    }
    | {"entropy-0.3": {"entropy": 0.3}},
}
"""Runs to choose from: those of `--entropy auto`, and methods, of which `dial` is one."""


@dataclass(frozen=True)
class Measured:
    """One run: its scores, the interval of its estimated accuracy, and its true accuracy."""

    name: str
    scores: dict[str, float | None]
    parts: dict[str, list[float]]
    """`score_in_parts` of each validator that has a score."""
    interval: tuple[float, float] | None
    accuracy: float
    lost: float = 0.0
    """Points between the best candidate of the run and the one that was taken."""
    correct: tuple[bool, ...] = ()
    """Whether each held-out source image is predicted correctly."""
    sound: bool = True
    """Whether it keeps the source, compared with the other runs."""


def measure(folder: Path) -> Measured:
    """Returns the figures of a finished run; None for scores that need a held-out source."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    saved = outputs.load(folder)
    scores = {
        name: None
        if saved.held_out is None and validators.needs_held_out(name)
        else validators.score(name, saved)
        for name in validators.names()
    }
    parts = {
        n: validators.score_in_parts(n, saved) for n, value in scores.items() if value is not None
    }
    interval = accuracy.estimate(saved)["estimated_interval"]
    known = {each["name"]: each["target_accuracy"] for each in result.get("candidates", ())}
    lost = 100 * (max(known.values()) - known[result["predictor"]]) if known else 0.0
    correct = tuple(validators.correct_on_source(saved))
    return Measured(
        folder.name,
        scores,
        parts,
        interval and (*interval,),
        result["target_accuracy"],
        lost,
        correct,
    )


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
    sound = [run for run in runs if run.sound]
    scores = [run.scores[name] or 0.0 for run in sound]
    equal = validators.as_good_as_the_best(scores, [run.parts[name] for run in sound])
    return _lost(runs, sound[equal.index(True)])  # the smallest weight is the first


def points_lost_by_the_highest(runs: Sequence[Measured], name: str) -> float:
    """Returns the points between the best run and the one with the highest score."""
    return _lost(runs, max(runs, key=lambda run: run.scores[name] or 0.0))


def _lost(runs: Sequence[Measured], choice: Measured) -> float:
    return 100 * (max(run.accuracy for run in runs) - choice.accuracy)


def write_page(measured: dict[str, list[Measured]]) -> str:
    """Returns all tables as Markdown; `measured` are runs by their task and seed."""
    names = list(validators.names())
    lines = ["# Validators, measured", ""]
    for task, runs in measured.items():
        heads = ["run", *names, "keeps the source", "estimate", "true accuracy"]
        heads += ["lost by the choice of candidates"]
        lines += [f"## {task}", "", row(heads), rule(len(heads))]
        for run in runs:
            scores = [number(run.scores[name]) for name in names]
            estimate = "-" if run.interval is None else "{:.2f} to {:.2f}".format(*run.interval)
            sound = "yes" if run.sound else "no"
            truth = [number(run.accuracy, 3), number(run.lost, 1)]
            lines.append(row([run.name, *scores, sound, estimate, *truth]))
        lines.append("")
    for pool, members in POOLS.items():
        some = {task: [r for r in runs if r.name in members] for task, runs in measured.items()}
        some = {task: with_soundness(runs) for task, runs in some.items() if len(runs) > 1}
        lines += [f"# Choosing the {pool}", ""]
        lines += ["## Rank correlation with the true accuracy (Spearman)", ""]
        lines += _by_validator(some, lambda runs, name: spearman(*_pairs(runs, name)), digits=2)
        title = "the first as good as the best of those that keep the source"
        lines += [f"## Points lost against the oracle, {title}", ""]
        lines += _by_validator(some, points_lost, digits=1)
        lines += ["## Points lost against the oracle, the highest score of all", ""]
        lines += _by_validator(some, points_lost_by_the_highest, digits=1)
    return "\n".join(lines) + "\n"


def _pairs(runs: Sequence[Measured], name: str) -> tuple[list[float], list[float]]:
    return [run.scores[name] or 0.0 for run in runs], [run.accuracy for run in runs]


def _by_validator(measured: dict[str, list[Measured]], figure: Any, *, digits: int) -> list[str]:
    lines = [row(["validator", *measured, "mean"]), rule(len(measured) + 2)]
    for name in validators.names():
        figures = [
            None if any(run.scores[name] is None for run in runs) else figure(runs, name)
            for runs in measured.values()
        ]
        numbers = [f for f in figures if f is not None and not math.isnan(f)]
        mean = float(np.mean(numbers)) if numbers else None
        lines.append(row([name, *(number(f, digits) for f in (*figures, mean))]))
    return [*lines, ""]


def main() -> None:
    """Train the runs that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", help="folder that contains office31")
    parser.add_argument("--tasks", default=",".join(TASKS), help="separated by commas")
    parser.add_argument("--pools", default=",".join(POOLS), help="separated by commas")
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--steps", type=int, help="instead of each task's own")
    parser.add_argument("--only-measure", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    measured: dict[str, list[Measured]] = {}
    members = {k: v for pool in arguments.pools.split(",") for k, v in POOLS[pool].items()}
    for seed in map(int, arguments.seeds.split(",")):
        for task in arguments.tasks.split(","):
            source, target, special = TASKS[task]
            runs: list[Measured] = []
            for name, chosen in members.items():
                folder = arguments.out / task / f"seed-{seed}" / name
                settings = {"steps": arguments.steps, "seed": seed, "data": arguments.data}
                settings |= {"report": False, **special, **chosen}
                if not arguments.only_measure:
                    dial.adapt(source, target, out=folder, resume=True, **settings)
                if (folder / "result.json").exists():
                    runs.append(measure(folder))
                if runs:
                    measured[f"{task}, seed {seed}"] = with_soundness(runs)
                page = write_page(measured)  # after each run, because all of them take long
                (arguments.out / "validators.md").write_text(page, encoding="utf-8")
    print(write_page(measured))


if __name__ == "__main__":
    main()
