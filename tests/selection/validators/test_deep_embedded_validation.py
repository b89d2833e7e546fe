"""The weighted risk against loops, and its control variate."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dial.selection import validators
from dial.selection.validators import deep_embedded_validation

from .small import make, probabilities


def test_deep_embedded_validation() -> None:
    outputs = make()
    held_out = outputs.require_held_out()
    both = np.concatenate([outputs.training.features, outputs.target.features]).astype(float)
    mean, deviation = both.mean(0), both.std(0)
    model = LogisticRegression(C=0.01, max_iter=1000)
    model.fit((both - mean) / deviation, [0] * 90 + [1] * 70)
    weights, losses = [], []
    for feature, row, label in zip(
        held_out.features, probabilities(held_out.logits), held_out.labels, strict=True
    ):
        source, target = model.predict_proba([(feature - mean) / deviation])[0]
        weights.append(90 / 70 * target / source)
        losses.append(-math.log(row[label]))
    products = [w * loss for w, loss in zip(weights, losses, strict=True)]
    w_mean, p_mean = sum(weights) / 40, sum(products) / 40
    covariance = sum((p - p_mean) * (w - w_mean) for p, w in zip(products, weights, strict=True))
    eta = -covariance / sum((w - w_mean) ** 2 for w in weights)
    expected = p_mean + eta * w_mean - eta
    found = validators.score("deep_embedded_validation", outputs)
    assert found == pytest.approx(-expected, rel=1e-4)


def test_control_variate_makes_the_risk_less_noisy() -> None:
    random = np.random.default_rng(0)
    plain, controlled = [], []
    for _ in range(300):
        weight = random.exponential(size=50)
        loss = 1 + 0.1 * random.normal(size=50)
        plain.append(np.mean(weight * loss))
        controlled.append(deep_embedded_validation.risk(weight, loss))
    assert np.std(controlled) < np.std(plain) / 2
    assert np.mean(controlled) == pytest.approx(1, abs=0.01)
    assert deep_embedded_validation.risk(np.ones(5), np.arange(5.0)) == 2.0
