"""Estimators by confidence: thresholds, temperatures and differences against lists."""

import math

import numpy as np
import pytest

from dial.selection.estimators import ESTIMATORS
from dial.selection.estimators._confidence import find_temperature, share_above_threshold
from dial.selection.outputs import LabelledObservation, Observation, Outputs


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


def estimate(name: str, held_out: LabelledObservation, target: Observation) -> float:
    outputs = Outputs(target=target, training=held_out, held_out=held_out)
    assert ESTIMATORS.create(name).lacks(outputs) == ""
    return ESTIMATORS.create(name).estimate(outputs)


def shares(row: np.ndarray, temperature: float) -> list[float]:
    powers = [math.exp(float(value) / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def _by_loops(held_out: LabelledObservation, target: Observation, temperature: float) -> float:
    """The threshold with lists: rank the scores, count down to the accuracy."""

    def certainty(row: np.ndarray) -> float:
        return sum(share * math.log(share) for share in shares(row, temperature) if share)

    right = sum(
        int(row.argmax() == y) for row, y in zip(held_out.logits, held_out.labels, strict=True)
    )
    known = sorted((certainty(row) for row in held_out.logits), reverse=True)
    above = [certainty(row) >= known[right - 1] for row in target.logits]
    return sum(above) / len(above)


def test_thresholds_as_by_hand() -> None:
    held_out = with_labels(seen(60, noise=1.5, seed=0))
    target, _ = seen(80, noise=1.5, seed=1)
    plain = estimate("thresholded_confidence", held_out, target)
    assert plain == pytest.approx(_by_loops(held_out, target, 1.0))
    temperature = find_temperature(held_out.logits, held_out.labels)
    calibrated = estimate("calibrated_confidence", held_out, target)
    assert calibrated == pytest.approx(_by_loops(held_out, target, temperature))


def test_the_source_is_estimated_as_it_is() -> None:
    held_out = with_labels(seen(400, noise=1.2, seed=0))
    true = np.mean(held_out.logits.argmax(1) == held_out.labels)
    for name in (
        "thresholded_confidence",
        "calibrated_confidence",
        "difference_of_confidences",
    ):
        assert estimate(name, held_out, held_out) == pytest.approx(true)
    more, labels = seen(4000, noise=1.2, seed=5)
    true = np.mean(more.logits.argmax(1) == labels)
    assert estimate("calibrated_confidence", held_out, more) == pytest.approx(true, abs=0.05)


def test_temperature_undoes_a_scale() -> None:
    one, ten = (with_labels(seen(300, noise=1.2, seed=0, scale=s)) for s in (1.0, 10.0))
    first, second = (find_temperature(x.logits, one.labels) for x in (one, ten))
    assert second / first == pytest.approx(10, rel=0.03)
    target, _ = seen(100, noise=1.2, seed=2)
    scaled = Observation(10 * target.logits, target.features)
    for name in (
        "calibrated_confidence",
        "difference_of_confidences",
        "transported_confidence",
    ):
        ours, theirs = estimate(name, one, target), estimate(name, ten, scaled)
        assert ours == pytest.approx(theirs, abs=0.03)


def test_nothing_and_everything_right() -> None:
    held_out, labels = seen(50, noise=0.0, seed=0)
    target, _ = seen(50, noise=0.0, seed=1)
    for shift, expected in ((0, 1.0), (1, 0.0)):
        known = LabelledObservation(held_out.logits, held_out.features, (labels + shift) % 3)
        assert share_above_threshold(known, target, temperature=1.0) == expected


def test_difference_of_confidences_by_hand() -> None:
    held_out = with_labels(seen(60, noise=1.5, seed=0))
    target, _ = seen(80, noise=2.5, seed=1)
    temperature = find_temperature(held_out.logits, held_out.labels)
    mean = [
        sum(max(shares(row, temperature)) for row in each.logits) / len(each.logits)
        for each in (held_out, target)
    ]
    expected = float(held_out.correct().mean()) - (mean[0] - mean[1])
    assert estimate("difference_of_confidences", held_out, target) == pytest.approx(expected)


def test_transport_with_every_assignment_tried() -> None:
    from itertools import permutations

    held_out = with_labels(seen(60, noise=1.0, seed=0))
    balanced = np.arange(60) % 3
    held_out = LabelledObservation(held_out.logits, held_out.features, balanced)
    target, _ = seen(6, noise=2.0, seed=3)
    temperature = find_temperature(held_out.logits, balanced)
    rows = [shares(row, temperature) for row in target.logits]
    best = max(
        sum(row[label] for row, label in zip(rows, labels, strict=True)) / 6
        for labels in set(permutations((0, 0, 1, 1, 2, 2)))
    )
    assert estimate("transported_confidence", held_out, target) == pytest.approx(best)


def test_nuclear_norm_of_what_is_certain() -> None:
    held_out = with_labels(seen(60, noise=1.0, seed=0))
    sure = Observation(1e3 * np.eye(3, dtype=np.float32)[np.arange(30) % 3], np.zeros((30, 2)))
    assert estimate("nuclear_norm", held_out, sure) == pytest.approx(1.0)
    one = Observation(1e3 * np.eye(3, dtype=np.float32)[np.zeros(30, int)], np.zeros((30, 2)))
    assert estimate("nuclear_norm", held_out, one) == pytest.approx(1 / math.sqrt(3))
