"""A training that starts from logistic regression on the source's features."""

from dataclasses import replace

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
