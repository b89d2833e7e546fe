"""Figures about predictions, against NumPy."""

import numpy as np
import pytest

from dial.reporting import metrics


@pytest.fixture
def answers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 200)
    after = np.where(generator.random(200) < 0.8, labels, generator.integers(0, 4, 200))
    before = np.where(generator.random(200) < 0.5, labels, generator.integers(0, 4, 200))
    return before, after, labels


def test_comparison(answers: tuple[np.ndarray, ...]) -> None:
    before, after, labels = answers
    comparison = metrics.compare(before, after, labels)
    assert comparison.before == np.mean(before == labels)
    assert comparison.after == np.mean(after == labels)
    difference = (after == labels).astype(float) - (before == labels)
    assert (comparison.mended - comparison.broken) / 200 == pytest.approx(difference.mean())
    assert comparison.margin == pytest.approx(1.96 * difference.std() / np.sqrt(200))


def test_confusion_and_scores_are_those_of_counting(answers: tuple[np.ndarray, ...]) -> None:
    before, after, labels = answers
    counts = [[np.sum((labels == i) & (after == j)) for j in range(4)] for i in range(4)]
    np.testing.assert_array_equal(metrics.confusion(after, labels, 4), counts)
    rows = metrics.per_class(
        tuple("abcd"), np.array([1, 1, 1, 7]), before=before, after=after, labels=labels
    )
    recalls = [np.mean(after[labels == i] == i) for i in range(4)]
    precisions = [np.mean(labels[after == i] == i) for i in range(4)]
    assert [row["recall"] for row in rows] == pytest.approx(recalls)
    assert [row["precision"] for row in rows] == pytest.approx(precisions)
    recalls_before = [np.mean(before[labels == i] == i) for i in range(4)]
    assert [row["recall_before"] for row in rows] == pytest.approx(recalls_before)
    assert rows[3]["source_share"] == pytest.approx(0.7)
    assert sum(row["share_after"] for row in rows) == pytest.approx(1)


def test_classes_without_images_or_predictions_have_no_score() -> None:
    zeros = np.zeros(5, np.int64)
    rows = metrics.per_class(("a", "b"), np.array([1, 1]), before=None, after=zeros, labels=zeros)
    assert (rows[0]["recall"], rows[0]["precision"]) == (1, 1)
    assert (rows[1]["recall"], rows[1]["precision"], rows[1]["images"]) == (None, None, 0)
    assert not {"recall_before", "share_before"} & {*rows[0], *rows[1]}
    bare = metrics.per_class(("a", "b"), np.array([1, 1]), before=zeros, after=zeros, labels=None)
    assert bare[0] == {"name": "a", "source_share": 0.5, "share_after": 1, "share_before": 1}


def test_doubts() -> None:
    even, sure = np.arange(100) % 10, np.full(100, 0.9, np.float32)
    balanced = np.full(10, 50)
    assert metrics.doubts(balanced, even, confidence=sure, comparison=None) == []
    one = np.zeros(100, np.int64)
    (collapse,) = metrics.doubts(balanced, one, confidence=sure, comparison=None)
    assert "collapsed into 1 of 10 classes, 100% of them into one" in collapse
    judged = metrics.doubts(balanced, one, confidence=sure, comparison=None, is_judged=True)
    assert "Collapse" not in " ".join(judged)
    (mixed,) = metrics.doubts(balanced, even // 2, confidence=sure, comparison=None)
    assert "50% of the predictions would have to change" in mixed
    (unsure,) = metrics.doubts(balanced, even, confidence=sure / 3, comparison=None)
    assert "mean confidence is 30%" in unsure
    worse = metrics.compare(even, (even + 1) % 10, even)
    (fallen,) = metrics.doubts(balanced, even, confidence=sure, comparison=worse)
    assert "fell from 100.0% to 0.0%" in fallen
