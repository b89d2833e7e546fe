"""What is bold, marked, missing or escaped in a table's files."""

import csv
import io
import re

import pytest

from dial.benchmarking.formats import as_csv, escape, latex, markdown
from dial.benchmarking.grids import Benchmark
from dial.benchmarking.tables import tabulate

from .made_up import ABLATION, DIGITS, OFFICE, SCORES, digits, result, without

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
