"""Mutual information against loops, and of collapsed predictions."""

from dataclasses import replace

import numpy as np
import pytest

from dial.selection import validators

from .small import entropy, make, probabilities


def test_information_maximization() -> None:
    outputs = make()
    rows = probabilities(outputs.target.logits)
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    expected = entropy(mean) - sum(map(entropy, rows)) / len(rows)
    assert validators.score("information_maximization", outputs) == pytest.approx(expected)


def test_collapse_scores_nothing() -> None:
    outputs = make()
    one = np.zeros_like(outputs.target.logits)
    one[:, 1] = 1000
    collapsed = replace(outputs, target=replace(outputs.target, logits=one))
    assert validators.score("information_maximization", collapsed) == pytest.approx(0, abs=1e-12)
