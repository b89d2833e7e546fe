"""Tables against means and deviations by NumPy, and what is best, missing or of fewer seeds."""

import pytest

from dial.benchmarking.tables import tabulate

from .made_up import DIGITS, OFFICE, SCORES, digits, result, without


def test_means_and_deviations() -> None:
    scores = 100 * SCORES
    table = tabulate(DIGITS, digits())
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
    assert table.over() == "mean and deviation over the seeds 0,1,2"
    assert not table.notes()


def test_the_best_are_marked_and_so_are_ties() -> None:
    rows = [("source_only", 0.50004), ("ddc", 0.49996), ("dan", 0.4)]
    table = tabulate(DIGITS, [result("mnist-optdigits", row, 0, a) for row, a in rows])
    assert [line.values[0].best for line in table.lines] == [True, True, False]
    assert table.over() == "seed 0"


def test_averages_need_all_tasks_and_missing_cells_are_counted() -> None:
    rows = DIGITS.choose_rows("source_only,ddc,dial")
    some = without(digits(), task="optdigits-mnist", row="dial")
    table = tabulate(DIGITS, some, rows=rows, tasks=DIGITS.tasks)
    source, ddc, dial = table.lines
    assert source.values[2] is not None
    assert ddc.values == (None, None, None)
    assert dial.values[0] is not None
    assert dial.values[1:] == (None, None)
    assert table.notes() == ["9 of 18 cells are finished."]
    one = without(digits(), task="optdigits-mnist")
    assert tabulate(DIGITS, one).columns == ("mnist->optdigits", "average")
    assert all(line.values[1] is None for line in tabulate(DIGITS, one).lines)


def test_means_over_fewer_seeds_are_marked_and_not_compared() -> None:
    some = without(digits(), task="mnist-optdigits", row="dial", seed=2)
    table = tabulate(DIGITS, some)
    source, dial = table.lines
    first, second, average = dial.values
    assert first.partial
    assert "†" in first.text()
    assert "†" in first.text(with_deviation=False)
    assert not second.partial
    assert average.partial
    assert average.mean == pytest.approx(100 * SCORES[:, 1, :2].mean())  # seeds of both tasks
    assert source.values[0].best
    assert source.values[2].best
    assert not first.best
    assert not average.best
    assert table.notes() == ["† 2 of 3 seeds.", "11 of 12 cells are finished."]


def test_seeds_that_tasks_do_not_share_have_no_average() -> None:
    cells = [result("mnist-optdigits", "dial", 0, 0.9), result("optdigits-mnist", "dial", 1, 0.8)]
    assert tabulate(DIGITS, cells).lines[0].values[2] is None


def test_the_papers_figures_stand_beside_ours() -> None:
    table = tabulate(OFFICE, [result("A-W", "dial", seed, 0.9) for seed in (0, 1)])
    assert len(table.columns) == 7
    networks = [block[0].network for block in table.blocks()]
    assert networks == ["digits_cnn (ours)", "AlexNet (paper)", "Inception-BN (paper)"]
    assert [line.ours for line in table.lines] == [True] + [False] * 9
    assert not any(v.partial for line in table.lines for v in line.values if v)
    assert table.notes() == ["2 of 12 cells are finished."]
