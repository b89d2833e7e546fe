"""How well the accuracy on a target can be estimated without its labels.

    python -m benchmarks.skewed_targets office31:amazon office31:webcam office31:dslr \\
        --data DATA --out LISTS
    python -m benchmarks.estimates --out runs/estimates --data DATA --lists LISTS

trains the runs that are missing, applies every estimator to their outputs, and writes
`OUT/estimates.md`: what each says beside the truth, its worst error, and the intervals. Runs are of
`frozen` and `dial` with their defaults, a tenth of the source held out: digits in both directions,
the six transfers of Office-31 at 160 px, and four targets with a third of the classes. One half of
the tasks is there to choose an estimator and its margins by; the other half had no part in it.
`--others FOLDER...` adds finished runs on other data to the second half.

The same command resumes interrupted runs. `--only-measure` trains nothing.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dial
from benchmarks.tables import number, row, rule
from dial import files
from dial.selection import accuracy, estimators, outputs

CHOOSE = ("mnist-optdigits", "A-W", "W-A", "D-W", "A-D-third", "D-A-third")
REPORT = ("optdigits-mnist", "A-D", "D-A", "W-D", "A-W-third", "W-A-third")
METHODS = ("frozen", "dial")
_DOMAINS = {"A": "amazon", "W": "webcam", "D": "dslr"}


@dataclass(frozen=True)
class Measured:
    """One run: what each estimator says, the interval that is shown, and the truth."""

    name: str
    truth: float
    estimates: Mapping[str, float | None]
    interval: tuple[float, float] | None
    reason: str = ""
    """Why there is no interval."""

    @property
    def is_covered(self) -> bool:
        """Whether the interval, if there is one, contains the truth."""
        low, high = self.interval or (0.0, 1.0)
        return low <= self.truth <= high


def measure(folder: Path, name: str = "") -> Measured:
    """Returns the figures of a finished run, by default under the names of its domains."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    ends = [Path(result[side]).name for side in ("source", "target")]
    name = name or f"{ends[0]}-{ends[1]} {result['method']}"
    saved = outputs.load(folder).with_features()
    estimates: dict[str, float | None] = {}
    for each in estimators.names():
        estimator = estimators.ESTIMATORS.create(each)
        estimates[each] = None if estimator.lacks(saved) else estimator.estimate(saved)
    found = accuracy.estimate(saved)
    interval = found.get("estimated_interval")
    reason = found.get("no_estimate", "")
    return Measured(name, result["target_accuracy"], estimates, interval and (*interval,), reason)


def find_task(name: str, lists: Path | None) -> tuple[str, str]:
    """Returns the source and the target of a task."""
    source, target, *kind = name.split("-")
    if source not in _DOMAINS:
        return f"digits:{source}", f"digits:{target}"
    if not kind:
        return f"office31:{_DOMAINS[source]}", f"office31:{_DOMAINS[target]}"
    return f"office31:{_DOMAINS[source]}", f"{lists}/{_DOMAINS[target]}-{kind[0]}.txt"


def train(name: str, method: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Make a run, or finish it."""
    source, target = find_task(name, arguments.lists)
    size = {} if source.startswith("digits") else {"image_size": 160}
    options: dict[str, Any] = {"method": method, "data": arguments.data, "report": False} | size
    dial.adapt(source, target, out=folder, resume=True, **options)


def write_page(halves: Mapping[str, Sequence[Measured]]) -> str:
    """Returns all tables as Markdown."""
    names = list(estimators.names())
    lines = ["# Accuracy without labels, measured", ""]
    for title, runs in halves.items():
        lines += [f"## {title}", "", row(["run", "truth", *names, "interval"])]
        lines += [rule(len(names) + 3)]
        for run in runs:
            shown = "none: " + run.reason if run.interval is None else _shown(run)
            figures = [run.truth, *(run.estimates[name] for name in names)]
            cells = [*(number(figure, 3) for figure in figures), shown]
            lines.append(row([run.name, *cells]))
        lines += ["", "Errors in points, estimate less truth:", ""]
        lines += [row(["estimator", "runs", "lowest", "highest", "mean of sizes"])]
        lines += [rule(5)]
        for name in names:
            lines.append(row([name, *_errors(runs, name)]))
        shown_runs = [run for run in runs if run.interval is not None]
        covered = sum(run.is_covered for run in shown_runs)
        lines += ["", f"Shown for {len(shown_runs)} of {len(runs)} runs; {covered} contain the "]
        lines[-1] += "truth.\n"
    return "\n".join(lines) + "\n"


def _errors(runs: Sequence[Measured], name: str) -> list[str]:
    found = [(run.estimates[name], run.truth) for run in runs]
    errors = [100 * (estimate - truth) for estimate, truth in found if estimate is not None]
    if not errors:
        return ["0", "-", "-", "-"]
    mean = sum(map(abs, errors)) / len(errors)
    return [str(len(errors)), f"{min(errors):+.1f}", f"{max(errors):+.1f}", f"{mean:.1f}"]


def _shown(run: Measured) -> str:
    low, high = run.interval or (0.0, 1.0)
    return f"{low:.3f} to {high:.3f}" + ("" if run.is_covered else ", missed")


def main() -> None:
    """Train the runs that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", help="folder that contains office31")
    parser.add_argument("--lists", type=Path, help="folder that skewed_targets wrote")
    parser.add_argument("--others", type=Path, nargs="*", default=[], help="finished runs")
    parser.add_argument("--only-measure", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    halves: dict[str, list[Measured]] = {"To choose by": [], "Not seen before": []}
    for title, tasks in zip(halves, (CHOOSE, REPORT), strict=True):
        for name in tasks:
            for method in METHODS:
                folder = arguments.out / name / method
                if method == "frozen" and name.split("-")[0] not in _DOMAINS:
                    continue  # a network that begins at random has no features to go by
                if not arguments.only_measure:
                    train(name, method, folder, arguments)
                if (folder / "result.json").exists():
                    halves[title].append(measure(folder, f"{name} {method}"))
    halves["Not seen before"] += [measure(folder) for folder in arguments.others]
    page = write_page(halves)
    files.write_text(arguments.out / "estimates.md", page)
    print(page)


if __name__ == "__main__":
    main()
