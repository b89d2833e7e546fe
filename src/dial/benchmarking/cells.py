"""The cells of a grid: which there are, what each is run with, and which share a machine gets."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial import settings
from dial.benchmarking.grids import Benchmark, Row, Task
from dial.errors import DialError
from dial.runs import came_to_something
from dial.settings import Settings

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
        inherited = {
            key: settings.PRESETS[self.preset].options[key]
            for key in self.row.inherits
            if key in settings.PRESETS[self.preset].options
        }
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
        return settings.choose(self.preset, self.options())


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
    preset = preset or settings.preset_for(chosen.get("backbone"), default=benchmark.preset)
    settings.choose(preset, chosen)  # to hear of mistakes before anything runs
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


def check_settings(cells: Sequence[Cell], out: Path) -> None:
    """Refuse to mix runs of different settings in one table.

    Raises:
        DialError: names a cell that has results or a checkpoint, and what it was run with.
    """
    if not cells:
        return
    ours = {cell.folder: cell for cell in cells}
    for path in sorted((out / "runs").glob("*/*/seed-*/config.json")):
        if not came_to_something(path.parent):
            continue  # it begins anew
        before = _known(json.loads(path.read_text())["settings"])
        cell = ours.get(path.parent, cells[0])
        changed = [
            f"{key} was {before.get(key)!r}, is {value!r}"
            for key, value in _plain(cell.settings()).items()
            if before.get(key) != value and (path.parent in ours or key not in PER_CELL)
        ]
        if changed:
            raise DialError(
                wanted=f"the settings that the cell in {path.parent} was run with",
                got="; ".join(changed),
                fix="give the same settings, or another --out",
            )


def _known(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings, with today's defaults for what did not exist when they were stored."""
    return _plain(Settings()) | settings.BEFORE | dict(stored)


def _plain(chosen: Settings) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(chosen.to_dict(), default=repr))
    return plain
