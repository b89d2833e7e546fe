"""The files and the print-out of a table: what is bold, marked, missing, escaped or shortened."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dial.benchmarking import figure
from dial.benchmarking.benchmarks import Benchmark
from dial.benchmarking.rendering import as_csv, escape, latex, markdown, page, print_table
from dial.benchmarking.tables import tabulate

from .made_up import ABLATION, DIGITS, OFFICE, SCORES, Results, digits, result, without

PARTIAL = without(digits(), task="mnist-optdigits", row="dial", seed=2)


def test_markdown() -> None:
    scores = 100 * SCORES
    cell = f"{scores[0, 0].mean():.1f} ± {scores[0, 0].std(ddof=1):.1f}"
    assert cell in markdown(tabulate(DIGITS, digits()))
    rows = DIGITS.choose_rows("source_only,ddc")
    assert "| DDC | - | - | - |" in markdown(tabulate(DIGITS, digits(), rows=rows))
    text = markdown(tabulate(OFFICE, [result("A-W", "dial", 0, 0.9)]))
    assert "| Inception-BN (paper) | DIAL BN | **82.9** | **87.3** |" in text
    assert "| AlexNet (paper) | ReverseGrad | 73.0 | - | - | 99.2 | - | 96.4 | - |" in text


def test_csv_has_numbers_alone_and_how_many_seeds_each_is_over() -> None:
    source, dial = csv.DictReader(io.StringIO(as_csv(tabulate(DIGITS, PARTIAL))))
    assert float(source["average"]) == pytest.approx(100 * SCORES[:, 0].mean(), abs=0.006)
    assert dial["seeds"] == "0,1,2"
    assert [dial[f"{task.name} seeds"] for task in DIGITS.tasks] == ["2", "3"]
    assert dial["average seeds"] == "2"
    paper = next(csv.DictReader(io.StringIO(as_csv(tabulate(OFFICE, [])))))
    assert (paper["seeds"], paper["A->W seeds"], paper["A->W"]) == ("", "", "61.60")


@pytest.mark.parametrize("benchmark", [DIGITS, OFFICE, ABLATION], ids=lambda b: b.name)
def test_every_line_of_latex_has_all_columns(benchmark: Benchmark) -> None:
    task = benchmark.tasks[0].key
    cells = [result(task, row.name, 0, 0.5) for row in benchmark.rows]
    text = latex(tabulate(benchmark, cells))
    columns = len(re.search(r"\\begin\{tabular\}\{(l+r+)\}", text)[1])
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    spans = [int(n) for line in body for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    rows = [line for line in body if "multicolumn" not in line]
    assert {line.count(" & ") + 1 for line in rows} == {*spans} == {columns}
    assert len(spans) == text.count(r"\midrule") == 1 + len({r.network for r in benchmark.paper})
    assert rf"\label{{tab:{benchmark.name}}}" in text


def test_latex_is_escaped_and_whole() -> None:
    assert escape(r"a_b & 5 % {x} \y ~ ^ # $ <") == (
        r"a\_b \& 5 \% \{x\} \textbackslash{}y \textasciitilde{} \textasciicircum{} \# \$ "
        r"\textless{}"
    )
    text = latex(tabulate(DIGITS, PARTIAL))
    assert r"{digits\_cnn (ours)}" in text
    assert text.count(r"\begin") == text.count(r"\end{") == 2
    assert r"$\dagger$ 2 of 3 seeds. 11 of 12 cells are finished.}" in text
    assert text.isascii()
    ties = [result("mnist-optdigits", row, 0, 0.5) for row in ("ddc", "dan")]
    assert latex(tabulate(DIGITS, ties)).count(r"\textbf{50.0}") == 2


def test_the_page_holds_everything() -> None:
    some = without(digits(), task="mnist-optdigits", row="dial", seed=2)
    text = page(tabulate(DIGITS, some), some, command="dial bench digits --seeds 0,1,2")
    assert text.startswith("<!doctype html>")
    assert "<pre>dial bench digits --seeds 0,1,2</pre>" in text
    assert "mean and deviation over the seeds 0,1,2" in text
    assert "<p>† 2 of 3 seeds.</p>" in text
    assert "<p>11 of 12 cells are finished.</p>" in text
    assert text.count("digits_cnn (ours)") == 1
    assert 'colspan="4"' in text
    assert "<dt>steps</dt><dd>800</dd>" in text
    assert "<dt>epochs</dt>" not in text  # steps count in their place
    assert '<tr><th scope="row">dial</th><td>entropy 0.3, delay 0.25, warmup 0.25</td></tr>' in text


def test_one_seed_has_no_deviation_and_some_results_no_command() -> None:
    some = [r for r in digits() if r["seed"] == 1]
    text = page(tabulate(DIGITS, some), some, command=None)
    assert "After the last epoch, seed 1;" in text
    assert "deviation" not in text
    assert "±" not in text
    assert "Make it again" not in text


def test_the_page_needs_nothing_else() -> None:
    some = [result("A-W", "dial_bn", 0, 0.5)]
    table = tabulate(ABLATION, some)
    text = page(table, some, command=None, svg=figure.render(table)["svg"])
    assert "<?xml" not in text
    assert text.count("<svg") == text.count("</svg>") == 1
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)|@import""", text)
    assert links
    assert all((link or url).startswith(("#", "data:,")) for link, url in links)


def test_names_are_escaped() -> None:
    table = tabulate(DIGITS, digits())
    odd = replace(table.lines[0], network="<net>", method="a & b")
    table = replace(table, title="<title>", lines=(odd,))
    text = page(table, digits(), command="dial <x>")
    assert "&lt;net&gt;" in text
    assert "a &amp; b" in text
    assert "<h1>&lt;title&gt;</h1>" in text
    assert "dial &lt;x&gt;" in text


def printed(benchmark: Benchmark, results: Results, **console: Any) -> list[str]:
    out = io.StringIO()
    print_table(tabulate(benchmark, results), Path("runs"), console=Console(file=out, **console))
    return out.getvalue().splitlines()


def grid(benchmark: Benchmark, *, seeds: int, methods: str | None = None) -> Results:
    return [
        result(task.key, row.name, seed, 0.7 + seed / 10)
        for task in benchmark.tasks
        for row in benchmark.choose_rows(methods)
        for seed in range(seeds)
    ]


def test_a_pipe_gets_every_column_whole() -> None:
    lines = [
        " ".join(line.split()) for line in printed(ABLATION, grid(ABLATION, seeds=3), width=40)
    ]
    assert "DIAL Laplacian BN yes 73.0 72.0 55.1 98.7 56.7 96.6 75.4" in lines
    assert f"DIAL Anchored yes{' 80.0 ± 10.0' * 7}" in lines
    assert "AlexNet (paper)" in lines
    assert "Runs, results and tables: runs" in lines
    assert printed(ABLATION, [], width=40)


@pytest.mark.parametrize("benchmark", [ABLATION, OFFICE], ids=lambda b: b.name)
@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_is_not_overrun(benchmark: Benchmark, width: int) -> None:
    some = {"width": width, "force_terminal": True, "color_system": None}
    lines = printed(benchmark, grid(benchmark, seeds=3), **some)
    assert max(map(len, lines)) <= width
    row = next(line.split() for line in lines if line.startswith("DIAL"))
    values = ["80.0", "±", "10.0"] * 7 if width == 120 else ["80.0"] * 7
    assert row[-len(values) :] == values
    assert any("deviations are in table.md" in line for line in lines) == (width == 80)
    assert "digits_cnn (ours)" in lines


def test_only_names_are_shortened() -> None:
    some = {"width": 70, "force_terminal": True, "color_system": None}
    lines = printed(OFFICE, grid(OFFICE, seeds=1, methods="source_only_batch"), **some)
    assert max(map(len, lines)) <= 70
    row = next(line for line in lines if "…" in line)
    assert row.startswith("Source only, B")
    assert row.split()[-7:] == ["70.0"] * 7


def test_means_over_fewer_seeds_and_missing_cells_are_told() -> None:
    lines = printed(ABLATION, grid(ABLATION, seeds=2)[1:])
    assert "† 1 of 2 seeds." in lines
    cells = len(ABLATION.rows) * len(ABLATION.tasks) * 2
    assert f"{cells - 1} of {cells} cells are finished." in lines
