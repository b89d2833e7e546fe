"""From results to a table: mean and deviation over seeds, beside the paper's figures."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from dial.benchmarking.benchmarks import Benchmark, Row, Task
from dial.benchmarking.results import Result

PARTIAL = "†"
"""Marks a mean over fewer seeds than the table has."""
MISSING = "-"
Cell = tuple[str, bool]
"""What is printed, and whether in bold."""


@dataclass(frozen=True)
class Value:
    """An accuracy in percent, by seed; the paper's figures have no seed and stand under 0."""

    scores: Mapping[int, float]
    seeds: int = 1  # of the table
    best: bool = False

    @property
    def mean(self) -> float:
        """Mean over its seeds."""
        return mean(self.scores.values())

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over its seeds; None for one seed."""
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
    """A line of a table: one value a task, and their average; None where one is missing."""

    network: str
    method: str
    entropy: bool
    values: tuple[Value | None, ...]
    ours: bool  # measured here, and not the paper's


@dataclass(frozen=True)
class Table:
    """Our lines first, then a block of lines for each network of the paper."""

    name: str
    title: str
    columns: tuple[str, ...]  # the tasks, and the average
    lines: tuple[Line, ...]
    with_entropy: bool
    seeds: tuple[int, ...]

    @property
    def heads(self) -> list[str]:
        """The names of all columns."""
        return ["method", *(["entropy"] if self.with_entropy else []), *self.columns]

    @property
    def alignment(self) -> str:
        """For each column l (left, text) or r (right, numbers)."""
        return "l" * (len(self.heads) - len(self.columns)) + "r" * len(self.columns)

    def cells(self, line: Line, *, with_deviation: bool = True) -> list[Cell]:
        """The cells of a line, one for each of `heads`."""
        entropy = ["yes" if line.entropy else "no"] if self.with_entropy else []
        return [(name, False) for name in (line.method, *entropy)] + [
            (value.text(with_deviation=with_deviation), value.best) if value else (MISSING, False)
            for value in line.values
        ]

    def blocks(self) -> list[list[Line]]:
        """The lines of each network."""
        networks = dict.fromkeys(line.network for line in self.lines)
        return [[line for line in self.lines if line.network == name] for name in networks]

    def over(self) -> str:
        """The seeds that its figures are over."""
        about = "mean and deviation over the seeds" if len(self.seeds) > 1 else "seed"
        return f"{about} {','.join(map(str, self.seeds))}"

    def notes(self) -> list[str]:
        """Sentences on means over fewer seeds and on missing cells, if there are any."""
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
    """The table of these results, with a line for each of `rows` even if it is still empty.

    Without the paper's figures, only tasks that are in `tasks` or in the results have a column.
    """
    keys = {task.key for task in tasks} | {result["task"] for result in results}
    columns = [task for task in benchmark.tasks if benchmark.paper or task.key in keys]
    seeds = tuple(sorted({result["seed"] for result in results}))
    scores: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for result in results:
        scores[result["row"], result["task"]][result["seed"]] = 100 * result["accuracy"]
    settings = results[0]["settings"] if results else {}
    size = f", {settings['image_size']} px" if settings.get("image_size") else ""
    network = f"{settings['backbone']}{size} (ours)" if results else "ours"
    lines = []
    for row in benchmark.rows:
        cells = [scores[row.name, task.key] for task in columns]
        values = [Value(cell, len(seeds)) if cell else None for cell in cells]
        if any(values) or row in rows:
            values.append(average(values) if len(columns) == len(benchmark.tasks) else None)
            lines.append(Line(network, row.label, row.entropy, tuple(values), ours=True))
    for theirs, method, accuracies, total, entropy in benchmark.paper:
        values = [None if x is None else Value({0: x}) for x in (*accuracies, total)]
        lines.append(Line(f"{theirs} (paper)", method, entropy, tuple(values), ours=False))
    names = (*(task.name for task in columns), "average")
    table = Table(benchmark.name, benchmark.title, names, tuple(lines), benchmark.ablation, seeds)
    return replace(table, lines=tuple(ln for block in table.blocks() for ln in _mark_best(block)))


def average(values: Sequence[Value | None]) -> Value | None:
    """The average over tasks, of the seeds that all of them have."""
    present = [value for value in values if value is not None]
    if not present or len(present) < len(values):
        return None
    seeds = [s for s in present[0].scores if all(s in value.scores for value in present)]
    scores = {seed: mean(value.scores[seed] for value in present) for seed in seeds}
    return Value(scores, present[0].seeds) if scores else None


def _mark_best(block: Sequence[Line]) -> list[Line]:
    """The lines of a network with the best of each column marked, all of them where they tie.

    Only means over as many seeds as any in the column are compared, as they are printed.
    """

    def rank(value: Value | None) -> tuple[int, float]:
        return (len(value.scores), round(value.mean, 1)) if value else (0, math.nan)

    columns = []
    for column in zip(*(line.values for line in block), strict=True):
        best = max(map(rank, column))
        columns.append([value and replace(value, best=rank(value) == best) for value in column])
    rows = zip(*columns, strict=True)
    return [replace(line, values=row) for line, row in zip(block, rows, strict=True)]
