"""The bars of an ablation against what they are averages of."""

import numpy as np
import pytest

from dial.benchmarking import figure
from dial.benchmarking.paper import TABLE_2
from dial.benchmarking.tables import tabulate

from .made_up import ABLATION, result

ROWS = ("source_only", "entropy_only", "dial_bn", "dial_bn_no_entropy")


def test_one_transfer_is_not_called_an_average() -> None:
    given = [result("A-W", row, 0, 0.5 + i / 10) for i, row in enumerate(ROWS)]
    given.append(result("W-D", "dial_bn", 0, 1.0))  # the others do not have it
    drawn = figure.draw(tabulate(ABLATION, given))
    assert drawn is not None
    ours, theirs = drawn.axes
    assert sorted(bar.get_height() for bar in ours.patches) == pytest.approx([50, 60, 70, 80])
    assert ours.get_title() == "digits_cnn (ours)\nA->W"
    assert theirs.get_title() == "AlexNet (paper)\nA->W"
    groups = [[tick.get_text() for tick in axis.get_xticklabels()] for axis in (ours, theirs)]
    assert groups[0] == ["no DA-layers", "DIAL BN"]
    assert set(groups[0]) <= set(groups[1])
    assert len(groups[1]) == 6
    wanted = sorted(row.accuracies[0] or 0.0 for row in TABLE_2)
    assert sorted(bar.get_height() for bar in theirs.patches) == pytest.approx(wanted)


def test_the_papers_bars_are_over_our_transfers() -> None:
    given = [result(task, row, 0, 0.5) for task in ("A-W", "D-W") for row in ROWS]
    drawn = figure.draw(tabulate(ABLATION, given))
    assert drawn is not None
    assert [axis.get_title().split("\n")[1] for axis in drawn.axes] == [
        "average over A->W, D->W"
    ] * 2
    wanted = sorted(np.mean([row.accuracies[0], row.accuracies[5]]) for row in TABLE_2)
    assert sorted(bar.get_height() for bar in drawn.axes[1].patches) == pytest.approx(wanted)


def test_the_whole_table_has_the_papers_own_averages_and_our_deviations() -> None:
    seeds = {0: 0.5, 1: 0.7}
    given = [
        result(task.key, row, seed, accuracy)
        for task in ABLATION.tasks
        for row in ROWS
        for seed, accuracy in seeds.items()
        if (row, seed) != ("dial_bn", 1)
    ]
    drawn = figure.draw(tabulate(ABLATION, given))
    assert drawn is not None
    ours, theirs = drawn.axes
    assert "average over all 6 transfers" in ours.get_title()
    assert sorted(bar.get_height() for bar in theirs.patches) == sorted(
        r.average or 0.0 for r in TABLE_2
    )
    ends = [line for c in ours.collections for line in c.get_segments()]
    lengths = sorted({round(float(np.ptp(end[:, 1])), 2) for end in ends})
    assert lengths == [0, round(2 * np.std([50, 70], ddof=1), 2)]
    assert "50.0†" in [text.get_text() for text in ours.texts]


def test_the_same_results_give_the_same_files() -> None:
    table = tabulate(ABLATION, [result("A-W", "dial_bn", 0, 0.5)])
    images = figure.render(table)
    assert images == figure.render(table)
    assert b"<svg" in images["svg"]
    assert images["png"].startswith(b"\x89PNG")
    assert figure.render(tabulate(ABLATION, [])) == {}
