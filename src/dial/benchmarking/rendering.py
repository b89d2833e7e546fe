"""The files and the print-out of a benchmark's table: Markdown, CSV, LaTeX, a page, a terminal."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from importlib.resources import files as package_files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from dial import files
from dial.benchmarking import figure
from dial.benchmarking.results import Result
from dial.benchmarking.tables import MISSING, PARTIAL, Cell, Table

_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", PARTIAL: r"$\dagger$"}
)
_SHORTEST = 12  # characters that stay of a method's name in a terminal


def write(
    out: Path, table: Table, results: Sequence[Result], *, command: str | None, with_page: bool
) -> None:
    """Write the tables; `with_page`, which takes longer, also the page and an ablation's figure."""
    about = f"Accuracy on the target in percent at the last epoch, {table.over()}"
    about += f": `{command}`" if command else "."
    below = "\n\n".join([about, *table.notes()])
    files.write_text(out / "table.md", f"{markdown(table)}\n{below}\n")
    files.write_text(out / "table.csv", as_csv(table))
    files.write_text(out / "table.tex", latex(table))
    if with_page:
        images = figure.render(table) if table.with_entropy else {}
        for kind, content in images.items():
            files.write_bytes(out / f"figure.{kind}", content)
        html = page(table, results, command=command, svg=images.get("svg"))
        files.write_text(out / "index.html", html)


def markdown(table: Table) -> str:
    """As a Markdown table."""
    rules = ("---" if side == "l" else "---:" for side in table.alignment)
    rows = [["network", *table.heads], ["---", *rules]]
    for line in table.lines:
        cells = [f"**{text}**" if bold else text for text, bold in table.cells(line)]
        rows.append([line.network, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def as_csv(table: Table) -> str:
    """As comma-separated values: means, their deviations, and how many seeds each is over."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    more = [f"{column} {what}" for what in ("deviation", "seeds") for column in table.columns]
    writer.writerow(["network", "method", "entropy", "seeds", *table.columns, *more])
    for line in table.lines:
        scores = [value.scores if value and line.ours else {} for value in line.values]
        seeds = sorted({seed for some in scores for seed in some})
        entropy = "yes" if line.entropy else "no"
        row = [line.network, line.method, entropy, ",".join(map(str, seeds))]
        for name in ("mean", "deviation"):
            numbers = [getattr(value, name, None) for value in line.values]
            row += ["" if number is None else f"{number:.2f}" for number in numbers]
        writer.writerow([*row, *(len(some) or "" for some in scores)])
    return out.getvalue()


def latex(table: Table) -> str:
    """As a LaTeX table; needs the package booktabs."""

    def cell(text: str, bold: bool) -> str:
        text = "--" if text == MISSING else escape(text)
        return rf"\textbf{{{text}}}" if bold else text

    def row(cells: Iterable[str]) -> str:
        return "    " + " & ".join(cells) + r" \\"

    heads = [escape(head).replace(r"-\textgreater{}", r" $\to$ ") for head in table.heads]
    about = f"{table.title}: accuracy on the target in percent, last epoch."
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        r"  \small",
        r"  \setlength{\tabcolsep}{4pt}",
        rf"  \caption{{{escape(' '.join([about, *table.notes()]))}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{{table.alignment}}}",
        r"    \toprule",
        row(heads),
    ]
    for block in table.blocks():
        network = rf"\multicolumn{{{len(heads)}}}{{l}}{{{escape(block[0].network)}}}"
        lines += [r"    \midrule", row([network])]
        lines += [row(cell(*parts) for parts in table.cells(line)) for line in block]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def escape(text: str) -> str:
    """Plain text for LaTeX.

    >>> escape("dial_bn: 50 %")
    'dial\\\\_bn: 50 \\\\%'
    """
    return text.translate(_ESCAPED)


def page(
    table: Table, results: Sequence[Result], *, command: str | None, svg: bytes | None = None
) -> str:
    """As one self-contained HTML page: table, figure, settings, and the command that repeats it."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = package_files("dial.benchmarking").joinpath("benchmark.html.jinja")
    drawing = svg.decode() if svg else ""
    settings = results[0]["settings"]
    # Cells of a grid differ in the first three; steps replace epochs.
    hidden = ("method", "options", "seed", "epochs" if settings["steps"] is not None else "")
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        table=table,
        missing=MISSING,
        cells=len(results),
        figure=Markup(drawing[drawing.index("<svg") :]) if drawing else "",  # noqa: S704 - ours
        command=command,
        shared={k: v for k, v in settings.items() if v is not None and k not in hidden},
        rows={result["row"]: result["settings"]["options"] for result in results},
    )


def print_table(table: Table, out: Path, *, console: Console | None = None) -> None:
    """Print the table, the best of each column in bold, and the folder of its files."""
    console = console or Console()
    room = console.width if console.is_terminal else math.inf  # a pipe has no width of its own
    lines = [
        Text(table.title, style="bold"),
        Text("Accuracy on the target in percent, last epoch."),
        *_fit(table, room),
        *map(Text, table.notes()),
        Text(f"Runs, results and tables: {out}"),
    ]
    console.print(Text("\n").join(lines), soft_wrap=True)


def _fit(table: Table, room: float) -> list[Text]:
    """The lines of the table, in a narrow terminal without deviations and with shorter names."""
    heads = [(head, False) for head in table.heads]
    for with_deviation, gap in ((True, 2), (True, 1), (False, 2), (False, 1)):
        rows = [heads, *(table.cells(ln, with_deviation=with_deviation) for ln in table.lines)]
        widths = [max(len(text) for text, _ in column) for column in zip(*rows, strict=True)]
        excess = sum(widths) + gap * (len(widths) - 1) - room
        if excess <= 0:
            break
    widths[0] -= int(max(0, min(excess, widths[0] - _SHORTEST)))

    def line(cells: Sequence[Cell]) -> Text:
        texts = [Text(text, "bold" if bold else "", overflow="ellipsis") for text, bold in cells]
        for text, side, width in zip(texts, table.alignment, widths, strict=True):
            text.align("left" if side == "l" else "right", width)
        return Text(" " * gap).join(texts)

    head, *body = map(line, rows)
    lines, rest = [Text(), head, Text("─" * len(head))], iter(body)
    for block in table.blocks():
        lines += [Text(block[0].network, style="italic"), *(next(rest) for _ in block), Text()]
    if not with_deviation and len(table.seeds) > 1:
        lines.append(Text("Means over seeds; their deviations are in table.md."))
    return lines
