"""The cells of a grid: which there are, what each is run with, and which share a machine gets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial.benchmarking.grids import Benchmark, Row, Task
from dial.errors import DialError
from dial.training import run_folder
from dial.training.settings import BEFORE, PRESETS, Settings, choose, preset_for

PER_CELL = ("method", "options", "seed")
"""Settings in which the cells of one grid differ."""


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    task: Task
    row: Row
    seed: int
    folder: Path
    preset: str
    given: Mapping[str, Any]
    """Settings that were asked for in place of the preset's."""

    @property
    def title(self) -> str:
        """How it is called in a log."""
        return f"{self.task.name} {self.row.name} seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether it has a result."""
        return (self.folder / "result.json").exists()

    def options(self) -> dict[str, Any]:
        """What `dial.adapt` gets beside the domains, the folder and the preset."""
        usual = PRESETS[self.preset].options
        inherited = {key: usual[key] for key in self.row.inherits if key in usual}
        return {
            "holdout": 0.0,  # the protocols of the tables train on the whole source
            **self.given,
            **inherited,
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
    given: Mapping[str, Any],
) -> list[Cell]:
    """Every cell, seed by seed, so that a whole table of one seed is there first."""
    chosen = {key: value for key, value in given.items() if value is not None}
    preset = preset or preset_for(chosen.get("backbone"), default=benchmark.preset)
    choose(preset, chosen)  # to hear of mistakes before anything runs
    return [
        Cell(task, row, seed, out / "runs" / task.key / row.name / f"seed-{seed}", preset, chosen)
        for seed in seeds
        for task in tasks
        for row in rows
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
        raise DialError(
            wanted="a shard i/n with i from 1 to n",
            got=repr(shard),
            fix="write 1/2 on one machine and 2/2 on the other",
        )
    return list(cells[number - 1 :: count])


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds from a list like `0,1,2`, each once.

    >>> read_seeds("0,1, 2")
    (0, 1, 2)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise DialError(
            wanted="seeds like 0,1,2, whole numbers of 0 or more",
            got=repr(text),
            fix="write --seeds 0,1,2",
        )
    return tuple(dict.fromkeys(map(int, parts)))


def check_settings(cells: Sequence[Cell], out: Path, listed: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to mix runs of different settings in one table.

    Args:
        cells: those to run.
        out: the folder of the grid.
        listed: results of cells that may have no run's folder there.

    Raises:
        DialError: names a cell that has results or a checkpoint, and what it was run with.
    """
    if not cells:
        return
    home, ours = out / "runs", {cell.folder: cell for cell in cells}
    stored = {home / r["task"] / r["row"] / f"seed-{r['seed']}": r["settings"] for r in listed}
    for path in home.glob("*/*/seed-*/config.json"):
        if run_folder.came_to_something(path.parent):  # others begin anew
            stored[path.parent] = run_folder.read_config(path).get("settings", {})
    for folder, before in sorted(stored.items()):
        known = _known(before)
        changed = [
            f"{key} was {known.get(key)!r}, is {value!r}"
            for key, value in ours.get(folder, cells[0]).settings().stored().items()
            if known.get(key) != value and (folder in ours or key not in PER_CELL)
        ]
        if changed:
            raise DialError(
                wanted=f"the settings that the cell in {folder} was run with",
                got="; ".join(changed),
                fix="give the same settings, or another --out",
            )


def _known(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings, with today's defaults for what did not exist when they were stored."""
    return Settings().stored() | BEFORE | dict(stored)
