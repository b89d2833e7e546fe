"""The reverse classifier against one fitted by hand, and of collapsed predictions."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dial.selection import validators

from .small import make


def test_reverse_validation() -> None:
    outputs = make()
    held_out = outputs.require_held_out()
    features = outputs.target.features.astype(float)
    mean, deviation = features.mean(0), features.std(0)
    model = LogisticRegression(C=0.1, max_iter=1000)
    model.fit((features - mean) / deviation, outputs.target.logits.argmax(1))
    right = model.predict((held_out.features - mean) / deviation) == held_out.labels
    found = validators.score("reverse_validation", outputs)
    assert 0.25 < found < 1
    assert found == pytest.approx(right.mean())


def test_collapse_scores_chance() -> None:
    outputs = make()
    one = np.zeros_like(outputs.target.logits)
    one[:, 1] = 1000
    collapsed = replace(outputs, target=replace(outputs.target, logits=one))
    labels = outputs.require_held_out().labels
    assert validators.score("reverse_validation", collapsed) == np.mean(labels == 1)
