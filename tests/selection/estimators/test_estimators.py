"""What holds for every estimator, and those by neighbors and by agreement."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dial.selection import estimators
from dial.selection.estimators import ESTIMATORS
from dial.selection.estimators._support import expected_support, relative_support
from dial.selection.neighborhood import Neighborhood, look_around
from dial.selection.outputs import Outputs

from ..validators.small import make


def whole(*, seed: int = 0) -> Outputs:
    """Outputs that nothing is lacking in."""
    outputs = make(seed=seed)
    assert outputs.training is not None
    parts = outputs.training.features, outputs.training.labels, outputs.target.features
    around = look_around(*map(torch.from_numpy, parts))
    return replace(outputs, before=around, first=outputs.target.logits.argmax(1))


@pytest.mark.parametrize("name", estimators.names())
def test_contract(name: str) -> None:
    outputs, estimator = whole(), ESTIMATORS.create(name)
    assert estimator.lacks(outputs) == ""
    value = estimator.estimate(outputs)
    assert 0 <= value <= 1
    assert value == estimator.estimate(outputs)
    one = outputs.target.logits.copy()
    one[:, 2] += 1000  # collapsed, and far from where an exponential overflows
    collapsed = replace(outputs, target=replace(outputs.target, logits=one))
    assert 0 <= estimator.estimate(collapsed) <= 1


def test_what_is_lacking() -> None:
    bare = replace(whole(), training=None, held_out=None, before=None, first=None)
    reasons = {name: ESTIMATORS.create(name).lacks(bare) for name in estimators.names()}
    assert reasons.pop("nuclear_norm") == ""
    assert reasons.pop("agreement_with_first") == "there was no predictor before training"
    assert reasons.pop("agreement_of_halves") == "there are no source images"
    assert set(reasons.values()) == {"there are no source images to compare with"}
    trained = replace(whole(), held_out=None, before=None)
    for name in ("neighbors", "calibrated_confidence"):
        reason = ESTIMATORS.create(name).lacks(trained)
        assert reason == "no part of the source was held out of training"
    reason = ESTIMATORS.create("former_neighbors").lacks(trained)
    assert reason.startswith("a network trained from scratch has only its own features")


def test_support_by_hand() -> None:
    around = Neighborhood(
        of_target=np.array([[0, 0], [1, 0], [1, 1]]),
        of_source=np.array([[0, 0], [0, 1], [1, 0], [1, 0]]),
        labels=np.array([0, 0, 1, 1]),
    )
    assert expected_support(around, 3).tolist() == [0.75, 0.5, 0.625]
    logits = np.eye(3, dtype=np.float32)[[0, 1, 2]]
    expected = ((1 + 0.5 + 0) / 3) / ((0.75 + 0.5 + 0.625) / 3)
    assert relative_support(around, logits) == pytest.approx(expected)
    assert relative_support(around, np.eye(3, dtype=np.float32)[[0, 0, 1]]) == 1.0  # at most


@pytest.mark.parametrize("wrong", [0.0, 0.2, 0.5])
def test_clusters_are_estimated_as_they_are(wrong: float) -> None:
    """Classes far apart: the support is 1 where a prediction is right and 0 where it is not."""
    random = np.random.default_rng(0)
    centers = 20 * np.eye(5, dtype=np.float32)

    def draw(count: int, moved: float) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 5
        return (centers[labels] + random.normal(size=(count, 5)) + moved).astype("f4"), labels

    outputs = make(classes=5)
    assert outputs.training is not None
    source, source_labels = draw(100, 0.0)
    held, held_labels = draw(50, 0.0)
    target, truth = draw(200, 7.0)
    predicted = np.where(random.random(200) < wrong, (truth + 1) % 5, truth)
    kinds = type(outputs.training)
    known = Outputs(
        target=replace(outputs.target, logits=np.eye(5, dtype="f4")[predicted], features=target),
        training=kinds(centers[source_labels], source, source_labels),
        held_out=kinds(centers[held_labels], held, held_labels),
        before=look_around(*map(torch.from_numpy, (source, source_labels, target))),
    )
    true = float((predicted == truth).mean())
    for name in ("neighbors", "former_neighbors"):
        assert ESTIMATORS.create(name).estimate(known) == pytest.approx(true, abs=1e-6)


def test_agreement_with_the_first_predictor() -> None:
    outputs = whole()
    first = outputs.target.logits.argmax(1)
    first[:7] = (first[:7] + 1) % 4
    found = ESTIMATORS.create("agreement_with_first").estimate(replace(outputs, first=first))
    assert found == pytest.approx(63 / 70)


def test_two_heads_agree_where_the_source_is_clear() -> None:
    clear, unclear = make(shift=0.0), make(shift=0.0)
    assert clear.training is not None
    random = np.random.default_rng(0).permutation(90)
    shuffled = replace(clear.training, labels=clear.training.labels[random])
    halves = ESTIMATORS.create("agreement_of_halves")
    assert halves.estimate(clear) > 0.9
    assert halves.estimate(replace(unclear, training=shuffled)) < halves.estimate(clear) - 0.2
    single = replace(clear.training, labels=np.r_[4, clear.training.labels[1:]])
    five = replace(clear.target, logits=np.zeros((70, 5), dtype="f4"))
    reason = halves.lacks(replace(clear, training=single, target=five))
    assert reason == "a class has a single source image"
