"""The estimate of accuracy without labels: its threshold, its temperature, when there is none."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dial
from dial.selection import accuracy
from dial.selection.outputs import LabelledObservation, Observation, Outputs

from ..conftest import SETTINGS


def seen(
    count: int, *, noise: float, seed: int, scale: float = 1.0
) -> tuple[Observation, np.ndarray]:
    """Logits of three classes that are right the less often the more noise there is."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    logits = 2.0 * np.eye(3)[labels] + noise * random.normal(size=(count, 3))
    logits = (scale * logits).astype(np.float32)
    return Observation(logits, np.zeros((count, 2), np.float32)), labels


def with_labels(made: tuple[Observation, np.ndarray]) -> LabelledObservation:
    return LabelledObservation(made[0].logits, made[0].features, made[1])


def _by_loops(held_out: LabelledObservation, target: Observation, temperature: float) -> float:
    """The same with lists: rank the scores, count down to the accuracy."""

    def certainty(row: np.ndarray) -> float:
        powers = [math.exp(float(value) / temperature) for value in row]
        shares = [power / sum(powers) for power in powers]
        return sum(share * math.log(share) for share in shares if share)

    right = sum(
        int(row.argmax() == y) for row, y in zip(held_out.logits, held_out.labels, strict=True)
    )
    known = sorted((certainty(row) for row in held_out.logits), reverse=True)
    above = [certainty(row) >= known[right - 1] for row in target.logits]
    return sum(above) / len(above)


def test_as_by_hand() -> None:
    held_out = with_labels(seen(60, noise=1.5, seed=0))
    target, _ = seen(80, noise=1.5, seed=1)
    temperature = accuracy.find_temperature(held_out.logits, held_out.labels)
    expected = _by_loops(held_out, target, temperature)
    assert accuracy.estimate(held_out, target) == pytest.approx(expected)


def test_the_source_is_estimated_as_it_is() -> None:
    held_out = with_labels(seen(400, noise=1.2, seed=0))
    true = np.mean(held_out.logits.argmax(1) == held_out.labels)
    assert accuracy.estimate(held_out, held_out) == pytest.approx(true)
    more, labels = seen(4000, noise=1.2, seed=5)
    true = np.mean(more.logits.argmax(1) == labels)
    assert accuracy.estimate(held_out, more) == pytest.approx(true, abs=0.05)


def test_temperature_undoes_a_scale() -> None:
    one, ten = (with_labels(seen(300, noise=1.2, seed=0, scale=s)) for s in (1.0, 10.0))
    first, second = (accuracy.find_temperature(x.logits, one.labels) for x in (one, ten))
    assert second / first == pytest.approx(10, rel=0.03)
    target, _ = seen(100, noise=1.2, seed=2)
    scaled = Observation(10 * target.logits, target.features)
    ours, theirs = accuracy.estimate(one, target), accuracy.estimate(ten, scaled)
    assert ours == pytest.approx(theirs, abs=0.03)


def test_nothing_and_everything_right() -> None:
    held_out, labels = seen(50, noise=0.0, seed=0)
    target, _ = seen(50, noise=0.0, seed=1)
    right = LabelledObservation(held_out.logits, held_out.features, labels)
    wrong = LabelledObservation(held_out.logits, held_out.features, (labels + 1) % 3)
    assert accuracy.estimate(right, target) == 1.0
    assert accuracy.estimate(wrong, target) == 0.0


def test_few_errors_make_the_estimate_a_bound() -> None:
    held_out, labels = seen(60, noise=0.0, seed=0)
    target, _ = seen(40, noise=1.0, seed=1)
    for wrong in (0, 9, 10):
        guessed = np.where(np.arange(60) < wrong, (labels + 1) % 3, labels)
        known = LabelledObservation(held_out.logits, held_out.features, guessed)
        entries = accuracy.judge(
            Outputs(target=target, training=known, held_out=known), holdout=0.1
        )
        doubt = f"it rests on the {wrong} of 60 held-out images that are predicted wrong"
        assert entries.get("estimate_doubt", "").startswith(doubt) == (wrong < 10)
        assert 0 <= entries["estimated_accuracy"] <= 1


def test_a_warning_where_adaptation_hurts() -> None:
    training = with_labels(seen(50, noise=1.0, seed=0))
    sure, _ = seen(50, noise=0.1, seed=1, scale=5)
    unsure, _ = seen(50, noise=0.1, seed=1, scale=0.1)
    better = Outputs(target=sure, training=training, held_out=None, unadapted=unsure)
    worse = Outputs(target=unsure, training=training, held_out=None, unadapted=sure)
    alone = Outputs(target=unsure, training=training, held_out=None)
    assert accuracy.judge(better, holdout=0.1)["warnings"] == []
    assert accuracy.judge(alone, holdout=0.1)["warnings"] == []
    (warning,) = accuracy.judge(worse, holdout=0.1)["warnings"]
    assert warning.startswith("adaptation seems to hurt: information_maximization of the target")
    entries = accuracy.judge(worse, holdout=0.1)
    assert entries["estimated_accuracy"] is None
    assert entries["no_estimate"] == "the source is too small to hold 30 images out of training"
    assert "no part of the source" in accuracy.judge(worse, holdout=0)["no_estimate"]


def test_in_the_result_and_the_report(folders: tuple[Path, Path], tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    settings: dict[str, Any] = SETTINGS | {"epochs": 1, "cache_dir": cache, "report": True}
    run = dial.adapt(*folders, out=tmp_path / "run", holdout=0.95, **settings)
    assert 0 <= run.result["estimated_accuracy"] <= 1
    page = (run.folder / "report.html").read_text()
    assert "estimated accuracy on the target, without its labels" in page
    assert "confidence means the same on both domains" in page
    run = dial.adapt(*folders, out=tmp_path / "small", **settings)
    assert run.result["estimated_accuracy"] is None
    page = (run.folder / "report.html").read_text()
    assert "There is no estimate of the accuracy without labels: the source is too small" in page
