"""Tables against means and deviations by NumPy, and what is bold, missing or escaped in them."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dial.benchmarking import figure, page
from dial.benchmarking.cells import Cell
from dial.benchmarking.grids import get
from dial.benchmarking.tables import Line, Table, as_csv, escape, latex, markdown, tabulate
from dial.repetition import stored

DIGITS, OFFICE, ABLATION = get("digits"), get("office31"), get("office31-ablation")
Results = list[dict[str, Any]]


def result(task: str, row: str, seed: int, accuracy: float) -> dict[str, Any]:
    found = next(r for b in (DIGITS, OFFICE, ABLATION) for r in b.rows if r.name == row)
    settings = stored(Cell(DIGITS.tasks[0], found, seed, Path(), "digits_cnn", {}).settings())
    return {
        "task": task, "row": row, "seed": seed, "accuracy": accuracy, "settings": settings,
    }  # fmt: skip


@pytest.fixture
def results() -> Results:
    scores = np.random.default_rng(0).uniform(0.3, 1, size=(2, 2, 3))
    return [
        result(task.key, row, seed, float(scores[i, j, seed]))
        for i, task in enumerate(DIGITS.tasks)
        for j, row in enumerate(("source_only", "dial"))
        for seed in range(3)
    ]


def test_means_and_deviations(results: Results) -> None:
    scores = 100 * np.random.default_rng(0).uniform(0.3, 1, size=(2, 2, 3))
    table = tabulate(DIGITS, results)
    assert table.columns == ("mnist->optdigits", "optdigits->mnist", "average")
    assert [line.method for line in table.lines] == ["Source only", "DIAL"]
    for j, line in enumerate(table.lines):
        for i in range(2):
            value = line.values[i]
            assert value.mean == pytest.approx(scores[i, j].mean())
            assert value.deviation == pytest.approx(scores[i, j].std(ddof=1))
        average = line.values[2]
        assert average.mean == pytest.approx(scores[:, j].mean())
        assert average.deviation == pytest.approx(scores[:, j].mean(0).std(ddof=1))
    cell = f"{scores[0, 0].mean():.1f} ± {scores[0, 0].std(ddof=1):.1f}"
    assert cell in markdown(table)
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert float(rows[1]["average"]) == pytest.approx(scores[:, 1].mean(), abs=0.006)
    assert rows[1]["seeds"] == "0,1,2"


def test_the_best_is_bold_and_so_are_ties() -> None:
    rows = [("source_only", 0.50004), ("ddc", 0.49996), ("dan", 0.4)]
    table = tabulate(DIGITS, [result("mnist-optdigits", row, 0, a) for row, a in rows])
    assert [line.values[0].best for line in table.lines] == [True, True, False]
    assert markdown(table).count("**50.0**") == 2
    assert latex(table).count(r"\textbf{50.0}") == 2


def test_missing_cells_are_dashes_and_averages_need_all_tasks(results: Results) -> None:
    rows = DIGITS.choose_rows("source_only,ddc,dial")
    some = [r for r in results if (r["task"], r["row"]) != ("optdigits-mnist", "dial")]
    source, ddc, dial = tabulate(DIGITS, some, rows=rows, tasks=DIGITS.tasks).lines
    assert source.values[2] is not None
    assert ddc.values == (None, None, None)
    assert dial.values[0] is not None
    assert dial.values[1:] == (None, None)
    assert "| DDC | - | - | - |" in markdown(tabulate(DIGITS, some, rows=rows))
    one = [r for r in results if r["task"] == "mnist-optdigits"]
    assert tabulate(DIGITS, one).columns == ("mnist->optdigits", "average")
    assert all(line.values[1] is None for line in tabulate(DIGITS, one).lines)
    without = [r for r in results if not (r["task"] == "mnist-optdigits" and r["seed"] == 2)]
    assert tabulate(DIGITS, without).lines[0].values[2].deviation is None  # not the same seeds


def test_the_papers_figures_stand_beside_ours() -> None:
    table = tabulate(OFFICE, [result("A-W", "dial", 0, 0.9)])
    assert len(table.columns) == 7
    networks = [block[0].network for block in table.blocks()]
    assert networks == ["digits_cnn (ours)", "AlexNet (paper)", "Inception-BN (paper)"]
    text = markdown(table)
    assert "| Inception-BN (paper) | DIAL BN | **82.9** | **87.3** |" in text
    assert "| AlexNet (paper) | ReverseGrad | 73.0 | - | - | 99.2 | - | 96.4 | - |" in text


def test_latex_is_escaped_and_whole(results: Results) -> None:
    assert escape(r"a_b & 5 % {x} \y ~ ^ # $ <") == (
        r"a\_b \& 5 \% \{x\} \textbackslash{}y \textasciitilde{} \textasciicircum{} \# \$ "
        r"\textless{}"
    )
    text = latex(tabulate(DIGITS, results))
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == 3
    assert all(line.count(" & ") == 4 for line in body)
    assert r"digits\_cnn (ours)" in text
    assert "{llrrr}" in text
    assert text.count(r"\begin") == text.count(r"\end{") == 2
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_the_figure_has_a_bar_for_each_row_over_tasks_that_all_have() -> None:
    rows = ("source_only", "entropy_only", "dial_bn", "dial_bn_no_entropy")
    given = [result("A-W", row, 0, 0.5 + i / 10) for i, row in enumerate(rows)]
    given.append(result("W-D", "dial_bn", 0, 1.0))
    table = tabulate(ABLATION, given)
    drawn = figure.draw(table)
    assert drawn is not None
    ours, theirs = drawn.axes
    assert sorted(bar.get_height() for bar in ours.patches) == pytest.approx([50, 60, 70, 80])
    assert "average over A->W" in ours.get_title()
    assert len(theirs.patches) == 12
    assert "all transfers" in theirs.get_title()
    images = figure.render(table)
    assert images == figure.render(table)
    assert b"<svg" in images["svg"]
    assert images["png"].startswith(b"\x89PNG")
    assert figure.render(tabulate(ABLATION, [])) == {}


def test_the_page_holds_everything_and_escapes_it(results: Results) -> None:
    line = Line("<net>", "a & b", entropy=False, variant="", seeds="0", values=(None,))
    table = Table("<title>", ("average",), (line,), with_entropy=False)
    text = page.render(DIGITS, results, table, svg=b"<?xml?><svg></svg>")
    assert "&lt;net&gt;" in text
    assert "a &amp; b" in text
    assert "<svg></svg>" in text
    assert "<?xml?>" not in text
    assert "--methods source_only,dial --seeds 0,1,2" in text
    assert "http" not in text
