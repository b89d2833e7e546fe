"""Whether runs that gain are warned of, and runs that fail are: the warnings beside the truth.

    python -m benchmarks.alarms --out runs/alarms --data DATA

trains `dial` with its defaults on the six transfers of Office-31 and on digits both ways, with
several seeds, and the runs on digits that must be warned of; and writes `OUT/alarms.md`: what a run
gained over the same network without adaptation, what the tests found, and what was said.
`--image-size` and `--steps` make the runs on Office-31 shorter. The same command resumes
interrupted runs.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dial
from benchmarks.tables import number, row, rule
from dial import files
from dial.reporting import record

_DOMAINS = {"A": "amazon", "W": "webcam", "D": "dslr"}
TRANSFERS = ("A-W", "D-A", "W-A", "A-D", "D-W", "W-D")
FAILURES: Mapping[str, Mapping[str, Any]] = {
    "entropy_only": {"method": "entropy_only"},
    "dial, entropy 10": {"entropy": 10.0},
}
DIRECTIONS = (("mnist", "optdigits"), ("optdigits", "mnist"))
COLUMNS = ("run", "seed", "accuracy", "without adaptation", "changed", "support", "p", "warnings")


@dataclass(frozen=True)
class Planned:
    """One run: its name in the table, where it is from and to, and its options."""

    name: str
    source: str
    target: str
    seed: int
    options: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """The run's folder below the others."""
        return f"{self.name}-{self.seed}".replace(", ", "-").replace(" ", "-")


def plan(arguments: argparse.Namespace) -> list[Planned]:
    """Returns the runs, seed by seed."""
    sizes = {"image_size": arguments.image_size, "steps": arguments.steps}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    runs = []
    for seed in range(arguments.seeds):
        for transfer in TRANSFERS:
            source, target = (f"office31:{_DOMAINS[letter]}" for letter in transfer.split("-"))
            runs.append(Planned(transfer, source, target, seed, sizes))
        for source, target in DIRECTIONS:
            failures = FAILURES if seed < arguments.failing_seeds else {}
            for name, options in {"dial": {}, **failures}.items():
                ends = f"digits:{source}", f"digits:{target}"
                runs.append(Planned(f"{source}-{target} {name}", *ends, seed, options))
    return runs


def describe(planned: Planned, folder: Path) -> list[str]:
    """Returns a finished run's row."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    found = record.load(folder)
    before = None
    if "before" in found.predicted and found.labels is not None:
        before = 100 * float(np.mean(found.predicted["before"] == found.labels))
    compared = result.get("comparison") or {}
    said = "; ".join(result["warnings"]) or "none"
    cells = [number(100 * result["target_accuracy"], 1), number(before, 1)]
    figures = (number(compared.get(name), 3) for name in ("support", "chance"))
    cells += [str(compared.get("changed", "-")), *figures, said]
    return [planned.name, str(planned.seed), *cells]


def train(planned: Planned, folder: Path, data: str | None) -> None:
    """Make a run, or finish it."""
    dial.adapt(
        planned.source,
        planned.target,
        out=folder,
        seed=planned.seed,
        data=data,
        resume=True,
        **planned.options,
    )


def write_page(rows: Sequence[Sequence[str]]) -> str:
    """Returns the table as Markdown."""
    lines = [row([*COLUMNS]), rule(len(COLUMNS)), *(row([*cells]) for cells in rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train the runs that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", help="folder that contains office31")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--failing-seeds", type=int, default=2)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    rows = []
    for planned in plan(arguments):
        folder = arguments.out / planned.folder
        train(planned, folder, arguments.data)
        rows.append(describe(planned, folder))
        files.write_text(arguments.out / "alarms.md", write_page(rows))


if __name__ == "__main__":
    main()
