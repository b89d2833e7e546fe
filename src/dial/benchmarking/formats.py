"""A benchmark's table as Markdown, comma-separated values and LaTeX."""

import csv
import io
from collections.abc import Sequence

from dial.benchmarking.tables import PARTIAL, Table, Value

_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", PARTIAL: r"$\dagger$"}
)


def markdown(table: Table) -> str:
    """As a Markdown table."""

    def cell(value: Value | None) -> str:
        text = "-" if value is None else value.text()
        return f"**{text}**" if value and value.best else text

    heads = ["network", *table.heads()]
    texts = len(heads) - len(table.columns)
    rows = [heads, ["---"] * texts + ["---:"] * len(table.columns)]
    rows += [[line.network, *table.names(line), *map(cell, line.values)] for line in table.lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def as_csv(table: Table) -> str:
    """As comma-separated values: means, their deviations, and over how many seeds each is."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    more = [f"{column} {what}" for what in ("deviation", "seeds") for column in table.columns]
    writer.writerow(["network", "method", "entropy", "seeds", *table.columns, *more])
    for line in table.lines:
        values = [value for value in line.values if value and line.ours]
        seeds = sorted({seed for value in values for seed in value.scores})
        entropy = "yes" if line.entropy else "no"
        row = [line.network, line.method, entropy, ",".join(map(str, seeds))]
        row += [_number(value.mean if value else None) for value in line.values]
        row += [_number(value.deviation if value else None) for value in line.values]
        row += [str(len(value.scores)) if value and line.ours else "" for value in line.values]
        writer.writerow(row)
    return out.getvalue()


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def latex(table: Table) -> str:
    """As a LaTeX table; needs the package booktabs."""

    def cell(value: Value | None) -> str:
        text = "--" if value is None else escape(value.text())
        return rf"\textbf{{{text}}}" if value and value.best else text

    def row(cells: Sequence[str]) -> str:
        return "    " + " & ".join(cells) + r" \\"

    heads = [escape(head).replace(r"-\textgreater{}", r" $\to$ ") for head in table.heads()]
    texts = len(heads) - len(table.columns)
    about = f"{table.title}: accuracy on the target in percent, last epoch."
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        r"  \small",
        r"  \setlength{\tabcolsep}{4pt}",
        rf"  \caption{{{escape(' '.join([about, *table.notes()]))}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{{'l' * texts}{'r' * len(table.columns)}}}",
        r"    \toprule",
        row(heads),
    ]
    for block in table.blocks():
        lines.append(r"    \midrule")
        lines.append(row([rf"\multicolumn{{{len(heads)}}}{{l}}{{{escape(block[0].network)}}}"]))
        for line in block:
            lines.append(row([*map(escape, table.names(line)), *map(cell, line.values)]))
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def escape(text: str) -> str:
    """Plain text for LaTeX.

    >>> escape("dial_bn: 50 %")
    'dial\\\\_bn: 50 \\\\%'
    """
    return text.translate(_ESCAPED)
