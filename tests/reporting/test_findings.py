"""Figures about predictions, against NumPy and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from dial.reporting import findings


@pytest.fixture
def answers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 200)
    after = np.where(generator.random(200) < 0.8, labels, generator.integers(0, 4, 200))
    before = np.where(generator.random(200) < 0.5, labels, generator.integers(0, 4, 200))
    return before, after, labels


def test_comparison(answers: tuple[np.ndarray, ...]) -> None:
    before, after, labels = answers
    found = findings.compare(before, after, labels)
    assert found.before == np.mean(before == labels)
    assert found.after == np.mean(after == labels)
    difference = (after == labels).astype(float) - (before == labels)
    assert (found.mended - found.broken) / 200 == pytest.approx(difference.mean())
    assert found.margin == pytest.approx(1.96 * difference.std() / np.sqrt(200))


def test_confusion_and_scores_are_those_of_scikit_learn(answers: tuple[np.ndarray, ...]) -> None:
    before, after, labels = answers
    np.testing.assert_array_equal(
        findings.confusion(after, labels, 4), confusion_matrix(labels, after)
    )
    rows = findings.per_class(tuple("abcd"), np.array([1, 1, 1, 7]), before, after, labels)
    recalls = recall_score(labels, after, average=None)
    precisions = precision_score(labels, after, average=None)
    assert [row.recall for row in rows] == pytest.approx(recalls.tolist())
    assert [row.precision for row in rows] == pytest.approx(precisions.tolist())
    assert rows[3].source_share == pytest.approx(0.7)
    assert sum(row.share_after for row in rows) == pytest.approx(1)


def test_classes_without_images_or_predictions_have_no_score() -> None:
    zeros = np.zeros(5, np.int64)
    rows = findings.per_class(("a", "b"), np.array([1, 1]), None, zeros, zeros)
    assert (rows[0].recall, rows[0].precision) == (1, 1)
    assert (rows[1].recall, rows[1].precision, rows[1].recall_before) == (None, None, None)
    assert rows[1].share_before is None


def test_doubts() -> None:
    even, sure = np.arange(100) % 10, np.full(100, 0.9, np.float32)
    balanced = np.full(10, 50)
    assert findings.doubts(balanced, even, sure, None) == []
    one = np.zeros(100, np.int64)
    (collapse,) = findings.doubts(balanced, one, sure, None)
    assert "collapsed into 1 of 10 classes, 100% of them into one" in collapse
    (mixed,) = findings.doubts(balanced, even // 2, sure, None)
    assert "50% of the predictions would have to change" in mixed
    (unsure,) = findings.doubts(balanced, even, sure / 3, None)
    assert "mean confidence is 30%" in unsure
    worse = findings.compare(even, (even + 1) % 10, even)
    (fallen,) = findings.doubts(balanced, even, sure, worse)
    assert "fell from 100.0% to 0.0%" in fallen
