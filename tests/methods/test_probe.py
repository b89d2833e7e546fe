"""A training that starts from logistic regression on the source's features."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from dial import methods, use_domain
from dial.backbones import Backbone

from .small import backbone


@pytest.mark.parametrize("name", ["source_only", "dial"])
def test_the_first_logits_are_those_of_logistic_regression(name: str) -> None:
    labels = torch.arange(4).repeat(15)
    images = torch.randn(60, 3, 8, 8) + labels[:, None, None, None] * torch.randn(3, 1, 1)
    method = methods.create(name, {"start": "probe"})
    trainee = method.prepare(replace(backbone(), new=("5",)))
    features = trainee.network[:5].eval()(images).detach()
    wanted = LogisticRegression(C=0.1, max_iter=1000).fit(features, labels)
    method.begin(trainee, methods.Images(images.split(16), labels, ()))
    assert trainee.backbone.new == ()
    if name == "source_only":
        found = trainee.network.eval()(images).detach()
    else:  # one batch of the whole source: its logits are normalised, and scaled back
        for module in trainee.network[:5].modules():
            module.eval()
        trainee.network[5].train()
        with use_domain(trainee, "source"):
            found = trainee.network(images).detach()
    np.testing.assert_allclose(found, wanted.decision_function(features), atol=2e-3)


@pytest.mark.parametrize("reference", ["normal", "epsilon", "laplace", "anchored"])
@pytest.mark.parametrize("with_target", [True, False])
def test_a_layer_before_the_classifier_leaves_the_source_as_it_is(
    reference: str, with_target: bool
) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.LayerNorm(6), nn.Linear(6, 4))
    network = network.double()
    entry = Backbone.of(network, image_size=2, pretrained=True)
    assert entry.insert_before == ("3",)
    labels = torch.arange(4).repeat(15)
    images = torch.randn(60, 3, 2, 2).double() + labels[:, None, None, None]
    others = 3 * images[:31] - 1
    method = methods.create("dial", {"start": "probe", "head": with_target, "reference": reference})
    trainee = method.prepare(entry)
    raw, raw_target = network[:3](images).detach(), network[:3](others).detach()
    with use_domain(trainee, "source"):
        features = trainee.eval()(images).features.detach()
    targets = others.split(16) if with_target else ()
    method.begin(trainee, methods.Images(images.split(16), labels, targets))
    aligned: Any = network[3]
    before, layer = aligned.before, aligned.layer

    with use_domain(trainee, "source"), torch.no_grad():
        found = trainee.eval()(images).features
        torch.testing.assert_close(found, features, atol=1e-5, rtol=1e-5)
        trainee.train()  # the whole source as one batch
        found = trainee(images)
        torch.testing.assert_close(found.features, features, atol=1e-5, rtol=1e-5)
    wanted = LogisticRegression(C=0.1, max_iter=1000).fit(features.float(), labels)
    np.testing.assert_allclose(layer.weight.detach(), wanted.coef_, atol=1e-3)
    location, spread = before.reference.estimate(raw_target if with_target else raw)
    # The pass over the source above changed the source's statistics alone.
    torch.testing.assert_close(before.statistics("target").location, location, atol=1e-5, rtol=0)
    torch.testing.assert_close(before.statistics("target").spread, spread, atol=1e-5, rtol=1e-4)
    if reference == "normal":
        torch.testing.assert_close(before.bias.detach(), raw.mean(0), atol=1e-4, rtol=1e-4)
        deviation = (raw.var(0, correction=0) + 1e-5).sqrt()
        torch.testing.assert_close(before.weight.detach(), deviation, atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(
            found.logits, wanted.decision_function(features.float()), atol=2e-3
        )


def test_two_classes_have_the_probabilities_of_logistic_regression() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    method = methods.create("source_only", {"start": "probe"})
    trainee = method.prepare(Backbone.of(network, image_size=2))
    labels = torch.arange(2).repeat(20)
    images = torch.randn(40, 3, 2, 2) + labels[:, None, None, None]
    method.begin(trainee, methods.Images(images.split(16), labels, ()))
    wanted = LogisticRegression(C=0.1, max_iter=1000).fit(images.flatten(1), labels)
    probabilities = network(images).softmax(1).detach()
    np.testing.assert_allclose(probabilities, wanted.predict_proba(images.flatten(1)), atol=1e-4)
