"""Results of a benchmark in, tables out: mean and deviation over seeds, beside the paper's."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from dial.benchmarking.grids import Benchmark, Row, Task

_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
)


@dataclass(frozen=True)
class Value:
    """An accuracy in percent; its deviation over seeds, where there are two or more."""

    mean: float
    deviation: float | None = None
    best: bool = False

    def text(self, plus_minus: str = "±") -> str:
        """As it is printed."""
        if self.deviation is None:
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} {plus_minus} {self.deviation:.1f}"


@dataclass(frozen=True)
class Line:
    """A row of a table: one value a task, and their average; None where one is missing."""

    network: str
    method: str
    entropy: bool
    variant: str
    seeds: str
    values: tuple[Value | None, ...]

    @property
    def ours(self) -> bool:
        """Whether it was measured here; the paper's has no seeds."""
        return bool(self.seeds)


@dataclass(frozen=True)
class Table:
    """Ours first, then a block of lines for each network of the paper."""

    title: str
    columns: tuple[str, ...]
    """The tasks, and the average."""
    lines: tuple[Line, ...]
    with_entropy: bool

    def heads(self) -> list[str]:
        """The names of all columns."""
        return ["network", "method", *(["entropy"] if self.with_entropy else []), *self.columns]

    def blocks(self) -> list[list[Line]]:
        """The lines of each network."""
        networks = dict.fromkeys(line.network for line in self.lines)
        return [[line for line in self.lines if line.network == name] for name in networks]

    def names(self, line: Line) -> list[str]:
        """What stands before a line's values."""
        entropy = ["yes" if line.entropy else "no"] if self.with_entropy else []
        return [line.network, line.method, *entropy]


def tabulate(
    benchmark: Benchmark,
    results: Sequence[dict[str, Any]],
    *,
    rows: Sequence[Row] = (),
    tasks: Sequence[Task] = (),
) -> Table:
    """The table of what there is, with a line for each of `rows` even if it is empty yet.

    The average is over all tasks of the benchmark and is there only where all of them are.
    Without the paper's figures to compare with, tasks that are neither in `tasks` nor in the
    results have no column.
    """
    shown = [
        task
        for task in benchmark.tasks
        if benchmark.paper or task in tasks or any(r["task"] == task.key for r in results)
    ]
    network = _network(results)
    ours = []
    for row in benchmark.rows:
        own = [r for r in results if r["row"] == row.name]
        if own or row in rows:
            seeds = ",".join(map(str, sorted({r["seed"] for r in own}))) or "-"
            whole = len(shown) == len(benchmark.tasks)
            values = _values(own, [task.key for task in shown], with_average=whole)
            ours.append(Line(network, row.label, row.entropy, row.variant, seeds, values))
    theirs = [
        Line(
            f"{line.network} (paper)",
            line.method,
            line.entropy,
            line.variant,
            "",
            tuple(None if a is None else Value(a) for a in (*line.accuracies, line.average)),
        )
        for line in benchmark.paper
    ]
    table = Table(
        benchmark.title,
        (*(task.name for task in shown), "average"),
        tuple(ours + theirs),
        benchmark.ablation,
    )
    lines = [line for block in table.blocks() for line in _mark_best(block)]
    return Table(table.title, table.columns, tuple(lines), table.with_entropy)


def _network(results: Sequence[dict[str, Any]]) -> str:
    if not results:
        return "ours"
    chosen = results[0]["settings"]
    size = chosen.get("image_size")
    return f"{chosen['backbone']}, {size} px (ours)" if size else f"{chosen['backbone']} (ours)"


def _values(
    results: Sequence[dict[str, Any]], tasks: Sequence[str], *, with_average: bool
) -> tuple[Value | None, ...]:
    """One row's value for each task, and the average over them."""
    by_task = [{r["seed"]: 100 * r["accuracy"] for r in results if r["task"] == t} for t in tasks]
    values = [_over_seeds(list(scores.values())) for scores in by_task]
    means = [value.mean for value in values if value is not None]
    if not with_average or len(means) < len(tasks):
        return (*values, None)
    spread = None
    if all(scores.keys() == by_task[0].keys() for scores in by_task):
        averages = [mean(scores[seed] for scores in by_task) for seed in by_task[0]]
        spread = stdev(averages) if len(averages) > 1 else None
    return (*values, Value(mean(means), spread))


def _over_seeds(scores: Sequence[float]) -> Value | None:
    if not scores:
        return None
    return Value(mean(scores), stdev(scores) if len(scores) > 1 else None)


def _mark_best(block: Sequence[Line]) -> list[Line]:
    """The best of each column, all of them where several print the same."""
    columns = zip(*(line.values for line in block), strict=True)
    tops = [max((round(v.mean, 1) for v in c if v), default=math.nan) for c in columns]
    marked = []
    for line in block:
        values = tuple(
            value and Value(value.mean, value.deviation, best=round(value.mean, 1) == top)
            for value, top in zip(line.values, tops, strict=True)
        )
        marked.append(
            Line(line.network, line.method, line.entropy, line.variant, line.seeds, values)
        )
    return marked


def markdown(table: Table) -> str:
    """As a Markdown table."""

    def cell(value: Value | None) -> str:
        text = "-" if value is None else value.text()
        return f"**{text}**" if value and value.best else text

    heads = table.heads()
    texts = len(heads) - len(table.columns)
    rows = [heads, ["---"] * texts + ["---:"] * len(table.columns)]
    rows += [[*table.names(line), *map(cell, line.values)] for line in table.lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def as_csv(table: Table) -> str:
    """As comma-separated values: numbers alone, deviations in columns of their own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    deviations = [f"{column} deviation" for column in table.columns]
    writer.writerow(["network", "method", "entropy", "seeds", *table.columns, *deviations])

    def numbers(line: Line, of: Callable[[Value], float | None]) -> list[str]:
        found = [None if value is None else of(value) for value in line.values]
        return ["" if number is None else f"{number:.2f}" for number in found]

    for line in table.lines:
        names = [line.network, line.method, "yes" if line.entropy else "no", line.seeds]
        writer.writerow(
            [*names, *numbers(line, lambda v: v.mean), *numbers(line, lambda v: v.deviation)]
        )
    return out.getvalue()


def latex(table: Table) -> str:
    """As a LaTeX table; needs the package booktabs."""

    def cell(value: Value | None) -> str:
        text = "--" if value is None else value.text(r"$\pm$")
        return rf"\textbf{{{text}}}" if value and value.best else text

    def row(cells: Sequence[str]) -> str:
        return "    " + " & ".join(cells) + r" \\"

    heads = [escape(head).replace(r"-\textgreater{}", r" $\to$ ") for head in table.heads()]
    texts = len(heads) - len(table.columns)
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escape(table.title)}: accuracy on the target in percent, last epoch.}}",
        rf"  \begin{{tabular}}{{{'l' * texts}{'r' * len(table.columns)}}}",
        r"    \toprule",
        row(heads),
    ]
    for block in table.blocks():
        lines.append(r"    \midrule")
        for line in block:
            lines.append(row([*map(escape, table.names(line)), *map(cell, line.values)]))
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def escape(text: str) -> str:
    """Plain text for LaTeX.

    >>> escape("dial_bn: 50 %")
    'dial\\\\_bn: 50 \\\\%'
    """
    return text.translate(_ESCAPED)
