"""The cells of a benchmark's grid: what each is run with, and which of them a machine runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dial.benchmarking.benchmarks import Benchmark, Row, Task
from dial.errors import DialError
from dial.training import run_folder
from dial.training.settings import PRESETS, Settings, choose, preset_for

_OWN = ("method", "seed", "merge_sources")  # settings that differ between cells of one grid


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    task: Task
    row: Row
    seed: int
    folder: Path
    preset: str
    overrides: Mapping[str, Any]  # settings in place of the preset's, the same for all cells

    @property
    def title(self) -> str:
        """Its name in logs."""
        return f"{self.task.name} {self.row.name} seed {self.seed}"

    def options(self) -> dict[str, Any]:
        """What `dial.adapt` gets beside the domains, the folder and the preset."""
        usual = PRESETS[self.preset].options
        return {
            "holdout": 0.0,  # the protocols of the tables train on the whole source
            **self.overrides,
            **{key: usual[key] for key in self.row.inherits if key in usual},
            **self.row.options,
            "method": self.row.method,
            "seed": self.seed,
        }

    def settings(self) -> Settings:
        """The settings that `dial.adapt` makes of these."""
        return choose(self.preset, self.options())


def plan(
    benchmark: Benchmark,
    *,
    out: Path,
    tasks: Sequence[Task],
    rows: Sequence[Row],
    seeds: Sequence[int],
    preset: str | None,
    settings: Mapping[str, Any],
) -> list[Cell]:
    """Every cell, seed by seed, so that a whole table of one seed is there first.

    Settings that are None are left to the preset; without `preset` it is the backbone's own.
    """
    overrides = {key: value for key, value in settings.items() if value is not None}
    preset = preset or preset_for(overrides.get("backbone"), default=benchmark.preset)
    choose(preset, overrides)  # raises if something is wrong, before anything runs
    return [
        Cell(task, row, seed, out / f"runs/{task.key}/{row.name}/seed-{seed}", preset, overrides)
        for seed, task, row in product(seeds, tasks, rows)
        if not (row.options.get("merge_sources") and len(task.sources) == 1)  # the same as without
    ]


def take_shard(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """The share of one machine: `2/3` is the second of three.

    >>> take_shard(["a", "b", "c", "d"], "2/3")
    ['b']
    """
    if shard is None:
        return list(cells)
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        fix = "write 1/2 on one machine and 2/2 on the other"
        raise DialError(wanted="a shard i/n with i from 1 to n", got=repr(shard), fix=fix)
    return list(cells[number - 1 :: count])


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds from a list like `0,1,2`, each once.

    >>> read_seeds("0,1, 2")
    (0, 1, 2)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        wanted = "seeds like 0,1,2, whole numbers of 0 or more"
        raise DialError(wanted=wanted, got=repr(text), fix="write --seeds 0,1,2")
    return tuple(dict.fromkeys(map(int, parts)))


def check_settings(cells: Sequence[Cell], out: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to mix runs of different settings in one table, those in `out` and of `results`."""
    if not cells:
        return
    planned = {cell.folder: cell for cell in cells}
    stored = {out / f"runs/{r['task']}/{r['row']}/seed-{r['seed']}": dict(r) for r in results}
    for path in out.glob("runs/*/*/seed-*/config.json"):
        if run_folder.holds_run(path.parent):  # others start anew
            stored[path.parent] = run_folder.read_config(path)
    for folder, before in sorted(stored.items()):
        now = {"settings": planned.get(folder, cells[0]).settings().stored()}
        changes = run_folder.differences(before, now)
        if folder not in planned:  # another row or seed
            changes = {k: v for k, v in changes.items() if not k.startswith(_OWN)}
        if changes:
            wanted = f"the settings that the cell in {folder} was run with"
            fix = "give the same settings, or another --out"
            raise DialError(wanted=wanted, got=run_folder.show_changes(changes), fix=fix)
