"""The script that measures validators: its figures, and its page."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.validators import (
    Measured,
    measure,
    points_lost,
    points_lost_by_the_highest,
    spearman,
    write_page,
)

import dial
from dial.selection import validators


def run(value: float, score: float | None, accuracy: float, spread: float = 0.0) -> Measured:
    scores = dict.fromkeys(validators.names(), score)
    parts = {name: [(score or 0) - spread, (score or 0) + spread] for name in scores}
    interval = (accuracy - 0.02, accuracy + 0.04)
    return Measured(f"entropy-{value:g}", scores, parts, interval, accuracy)


def test_spearman_by_the_formula() -> None:
    first, second = [1.0, 5.0, 2.0, 9.0, 3.0], [2.0, 1.0, 7.0, 8.0, 5.0]
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    difference = ranks[0] - ranks[1]
    assert spearman(first, second) == pytest.approx(1 - 6 * (difference**2).sum() / (5 * 24))
    assert spearman([1, 1, 2], [3, 3, 9]) == pytest.approx(1)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_points_lost_and_the_page() -> None:
    runs = [run(0.0, 1.0, 0.7), run(0.1, 2.0, 0.9), run(1.0, 3.0, 0.8)]
    assert points_lost(runs, "source_accuracy") == pytest.approx(10)
    assert points_lost([run(0.0, 1.0, 0.7), run(1.0, 1.0, 0.9)], "source_accuracy") == (
        pytest.approx(20)
    )
    unclear = [run(0.0, 1.0, 0.7), run(0.1, 2.0, 0.9), run(1.0, 3.0, 0.8, spread=0.7)]
    assert points_lost(unclear, "source_accuracy") == pytest.approx(0)  # 3 - 2 is not above 1.4
    assert points_lost_by_the_highest(unclear, "source_accuracy") == pytest.approx(10)
    lost = [replace(each, sound=each.name != "entropy-1") for each in runs]
    assert points_lost(lost, "source_accuracy") == pytest.approx(0)
    assert points_lost_by_the_highest(lost, "source_accuracy") == pytest.approx(10)
    few = [run(0.0, None, 0.5), replace(run(0.1, None, 0.4), interval=None, lost=2.5)]
    page = write_page({"a-b": runs, "c-d": few})
    assert "| source_accuracy | 10.0 | - | 10.0 |" in page
    assert "| source_accuracy | 0.50 | - | 0.50 |" in page
    assert "| yes | 0.68 to 0.74 | 0.700 | 0.0 |" in page
    assert "| yes | - | 0.400 | 2.5 |" in page


def test_a_run_without_a_held_out_source(finished: dial.Run) -> None:
    found = measure(Path(finished.folder))
    assert found.scores["source_accuracy"] is None
    assert found.scores["information_maximization"] is not None
    assert found.accuracy == finished.result["target_accuracy"]
    assert found.interval is None
    assert found.lost == 0.0
