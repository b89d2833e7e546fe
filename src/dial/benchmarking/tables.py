"""Results of a benchmark in, a table out: mean and deviation over seeds, beside the paper's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from dial.benchmarking.grids import Benchmark, Row, Task
from dial.benchmarking.results import Result

PARTIAL = "†"
"""Stands behind a mean over fewer seeds than the table has."""


@dataclass(frozen=True)
class Value:
    """An accuracy in percent, by seed; the paper's figures have no seed and stand under 0."""

    scores: Mapping[int, float]
    seeds: int = 1
    """How many the table has."""
    best: bool = False

    @property
    def mean(self) -> float:
        """Over its seeds."""
        return mean(self.scores.values())

    @property
    def deviation(self) -> float | None:
        """The sample's over its seeds, where there are two or more."""
        return stdev(self.scores.values()) if len(self.scores) > 1 else None

    @property
    def partial(self) -> bool:
        """Whether it lacks seeds that others have."""
        return len(self.scores) < self.seeds

    def text(self, *, with_deviation: bool = True) -> str:
        """As it is printed.

        >>> Value({0: 70.0, 1: 72.0}, seeds=3).text()
        '71.0† ± 1.4'
        """
        text = f"{self.mean:.1f}{PARTIAL if self.partial else ''}"
        spread = self.deviation if with_deviation else None
        return text if spread is None else f"{text} ± {spread:.1f}"


@dataclass(frozen=True)
class Line:
    """A row of a table: one value a task, and their average; None where one is missing."""

    network: str
    method: str
    entropy: bool
    variant: str
    values: tuple[Value | None, ...]
    ours: bool
    """Whether it was measured here and is not the paper's."""


@dataclass(frozen=True)
class Table:
    """Ours first, then a block of lines for each network of the paper."""

    name: str
    """The benchmark's."""
    title: str
    columns: tuple[str, ...]
    """The tasks, and the average."""
    lines: tuple[Line, ...]
    with_entropy: bool
    seeds: tuple[int, ...]

    def heads(self) -> list[str]:
        """The names of all columns."""
        return ["method", *(["entropy"] if self.with_entropy else []), *self.columns]

    def blocks(self) -> list[list[Line]]:
        """The lines of each network."""
        networks = dict.fromkeys(line.network for line in self.lines)
        return [[line for line in self.lines if line.network == name] for name in networks]

    def names(self, line: Line) -> list[str]:
        """What stands before a line's values."""
        return [line.method, *(["yes" if line.entropy else "no"] if self.with_entropy else [])]

    def over(self) -> str:
        """What its figures are over."""
        seeds = ",".join(map(str, self.seeds))
        several = len(self.seeds) > 1
        return f"mean and deviation over the seeds {seeds}" if several else f"seed {seeds}"

    def notes(self) -> list[str]:
        """Sentences on means over fewer seeds and on cells that are missing, if there are any."""
        ours = [line.values for line in self.lines if line.ours]
        cells = [value for values in ours for value in values[:-1]]
        done, count = sum(len(v.scores) for v in cells if v), len(cells) * len(self.seeds)
        fewer = sorted({len(v.scores) for values in ours for v in values if v and v.partial})
        notes = []
        if fewer:
            notes.append(f"{PARTIAL} {' or '.join(map(str, fewer))} of {len(self.seeds)} seeds.")
        if done < count:
            notes.append(f"{done} of {count} cells are finished.")
        return notes


def tabulate(
    benchmark: Benchmark,
    results: Sequence[Result],
    *,
    rows: Sequence[Row] = (),
    tasks: Sequence[Task] = (),
) -> Table:
    """The table of what there is, with a line for each of `rows` even if it is empty yet.

    The average is over all tasks of the benchmark, of the seeds that all of them have. Without
    the paper's figures to compare with, tasks that are neither in `tasks` nor in the results have
    no column.
    """
    shown = [
        task
        for task in benchmark.tasks
        if benchmark.paper or task in tasks or any(r["task"] == task.key for r in results)
    ]
    seeds = tuple(sorted({result["seed"] for result in results}))
    network = _network(results)
    lines = []
    for row in benchmark.rows:
        own = [r for r in results if r["row"] == row.name]
        if own or row in rows:
            values = [_value(_scores(own, task), len(seeds)) for task in shown]
            total = average(values) if len(shown) == len(benchmark.tasks) else None
            lines.append(
                Line(network, row.label, row.entropy, row.variant, (*values, total), ours=True)
            )
    for theirs in benchmark.paper:
        printed = (*theirs.accuracies, theirs.average)
        figures = tuple(None if figure is None else Value({0: figure}) for figure in printed)
        name = f"{theirs.network} (paper)"
        lines.append(Line(name, theirs.method, theirs.entropy, theirs.variant, figures, ours=False))
    table = Table(
        benchmark.name,
        benchmark.title,
        (*(task.name for task in shown), "average"),
        tuple(lines),
        benchmark.ablation,
        seeds,
    )
    return replace(
        table, lines=tuple(line for block in table.blocks() for line in _mark_best(block))
    )


def average(values: Sequence[Value | None]) -> Value | None:
    """The average over tasks, of the seeds that all of them have."""
    present = [value for value in values if value is not None]
    if not present or len(present) < len(values):
        return None
    seeds = [s for s in present[0].scores if all(s in value.scores for value in present)]
    scores = {seed: mean(value.scores[seed] for value in present) for seed in seeds}
    return _value(scores, present[0].seeds)


def _network(results: Sequence[Result]) -> str:
    if not results:
        return "ours"
    chosen = results[0]["settings"]
    size = chosen.get("image_size")
    return f"{chosen['backbone']}, {size} px (ours)" if size else f"{chosen['backbone']} (ours)"


def _scores(results: Sequence[Result], task: Task) -> dict[int, float]:
    return {r["seed"]: 100 * r["accuracy"] for r in results if r["task"] == task.key}


def _value(scores: Mapping[int, float], seeds: int) -> Value | None:
    return Value(scores, seeds) if scores else None


def _mark_best(block: Sequence[Line]) -> list[Line]:
    """The best of each column, all of them where several print the same.

    Only means over as many seeds as any in the column are compared.
    """
    columns = zip(*(line.values for line in block), strict=True)
    tops = [_top([value for value in column if value]) for column in columns]
    return [
        replace(
            line,
            values=tuple(
                value and replace(value, best=(len(value.scores), round(value.mean, 1)) == top)
                for value, top in zip(line.values, tops, strict=True)
            ),
        )
        for line in block
    ]


def _top(values: Sequence[Value]) -> tuple[int, float]:
    """The most seeds of any value, and the best mean over so many."""
    return max(((len(v.scores), round(v.mean, 1)) for v in values), default=(0, math.nan))
