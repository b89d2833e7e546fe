"""The classifier of the target's class centroids, against NumPy."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dial import calibrate, convert, fold, methods
from dial.backbones import Backbone
from dial.errors import DialError
from dial.methods import set_centroid_classifier

from .small import softmax


def clusters(spread: float = 0.5) -> Tensor:
    """`(120, 5)`: features around four directions, 30 of each."""
    centroids = torch.tensor([[4.0, 0, 0, 0, 1], [0, 4, 0, 0, 1], [0, 0, 4, 0, 1], [0, 0, 0, 4, 1]])
    return centroids.repeat_interleave(30, 0) + spread * torch.randn(120, 5)


def network(*, appended: bool) -> nn.Module:
    """A classifier that finds the four directions, but not very well."""
    model = nn.Sequential(nn.Identity(), nn.Linear(5, 4))
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(4, 5) + 0.4 * torch.randn(4, 5))
    if not appended:
        return model.eval()
    convert(model, append_after=["1"])
    calibrate(model, [3 * clusters() + 1], domain="target")
    return fold(model, "target", fuse=False)


@pytest.mark.parametrize("appended", [False, True])
def test_logits_are_cosines_with_class_centroids_times_the_norm_and_a_scale(appended: bool) -> None:
    model, features = network(appended=appended), clusters()
    before = model(features).detach().double().numpy()
    assert set_centroid_classifier(model, features.split(50), classifier="1")
    after = model(features).detach().double().numpy()

    x = features.double().numpy()
    directions = x / np.linalg.norm(x, axis=1, keepdims=True)
    centroids = softmax(2 * before).T @ directions
    scores = x @ (centroids / np.linalg.norm(centroids, axis=1, keepdims=True)).T
    scale = after.std() / scores.std()
    np.testing.assert_allclose(after, scale * scores, rtol=1e-4, atol=1e-4 * scale)
    sure = [softmax(logits).max(1).mean() for logits in (before, after)]
    assert sure[0] == pytest.approx(sure[1], abs=1e-4)


def test_it_repairs_a_classifier_that_is_off() -> None:
    features, truth = clusters(), torch.arange(4).repeat_interleave(30)
    model = nn.Sequential(nn.Identity(), nn.Linear(5, 4)).eval()
    with torch.no_grad():
        turned = torch.eye(4, 5)
        turned[0, 1] = 0.9  # the first class takes what is the second's
        model[1].weight.copy_(turned)
        model[1].bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    before = float((model(features).argmax(1) == truth).float().mean())
    assert set_centroid_classifier(model, [features], classifier="1")
    assert before < 0.9 < float((model(features).argmax(1) == truth).float().mean())


def test_a_class_without_predictions_leaves_everything_as_it_was() -> None:
    model, features = network(appended=True), clusters()[:90]
    with torch.no_grad():
        model[1].bias[3] -= 100.0
    before = model(features)
    assert not set_centroid_classifier(model, [features], classifier="1")
    assert torch.equal(model(features), before)


def test_a_classifier_of_another_kind_is_refused_before_training() -> None:
    convolutional = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1))
    backbone = Backbone.of(convolutional, image_size=8)
    with pytest.raises(DialError, match="linear classifier") as caught:
        methods.create("dial", {"centroids": True}).prepare(backbone)
    assert "--no-head" in str(caught.value)
    methods.create("dial", {"centroids": False}).prepare(backbone)
