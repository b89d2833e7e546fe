"""AdaBN + CORAL: the recolored features, the classifier, and its setting's former name."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from dial import DialError, losses, methods
from dial.methods.adabn_coral import AdaBNCoral, recolor

from .small import Array, backbone, numpy


def coral(source: Array, target: Array) -> Array:
    def root(matrix: Array, power: float) -> Array:
        values, vectors = np.linalg.eigh(matrix)
        return np.asarray(vectors @ np.diag(values**power) @ vectors.T)

    eye = np.eye(source.shape[1])
    cs, ct = np.cov(source.T) + eye, np.cov(target.T) + eye
    return (source - source.mean(0)) @ root(cs, -0.5) @ root(ct, 0.5) + target.mean(0)


def test_coral_recolors_the_source() -> None:
    source, target = (
        torch.randn(200, 4) @ torch.randn(4, 4) + 3,
        torch.randn(90, 4) @ torch.randn(4, 4),
    )
    x, y = numpy(source), numpy(target)
    np.testing.assert_allclose(recolor(source, target), coral(x, y), rtol=1e-6, atol=1e-8)
    difference = np.cov(x.T) - np.cov(y.T)
    loss = float(losses.coral(source, target))
    assert loss == pytest.approx((difference**2).sum() / (4 * 16), rel=1e-5)


@torch.no_grad()
def test_the_classifier_is_logistic_regression_on_recolored_features() -> None:
    method, made = methods.create("adabn_coral", {"regularization": 0.5}), backbone()
    labels = torch.arange(4).repeat(15)
    source = torch.randn(60, 3, 8, 8) + labels[:, None, None, None] * torch.randn(3, 1, 1)
    target = 2 * torch.randn(40, 3, 8, 8) + 1
    convolution, trainee = made.network[0], method.prepare(made)

    def features(images: torch.Tensor) -> Array:
        x = numpy(convolution(images))
        variance = x.var((0, 2, 3), keepdims=True)
        x = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(variance + 1e-5)
        return np.asarray(np.maximum(x, 0).mean((2, 3)))

    images = methods.Images(source.split(16), labels, target.split(16))
    method.finish(trainee, images)
    logits = method.predictor(trainee, images)(target)
    recolored = coral(features(source), features(target))
    regression = LogisticRegression(C=0.5, max_iter=1000).fit(recolored, labels)
    np.testing.assert_allclose(logits, regression.decision_function(features(target)), atol=2e-3)


def test_the_former_name_of_the_setting_is_taken_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="regularisation is now called regularization"):
        method = methods.create("adabn_coral", {"regularisation": 0.3})
    assert method == AdaBNCoral(regularization=0.3)
    with pytest.raises(DialError, match="did you mean regularization"):
        methods.create("adabn_coral", {"regularisation": 0.3, "regularization": 0.4})
