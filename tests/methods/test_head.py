"""The head on a network's features, before training and after it."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from dial import use_domain
from dial.backbones import Backbone
from dial.methods import Images, create
from dial.methods._probe import extract
from dial.methods.interface import Trainee

from .small import backbone


def test_the_head_of_a_pretrained_network_is_there_before_training() -> None:
    labels = torch.arange(4).repeat(15)
    images = torch.randn(60, 3, 8, 8) + labels[:, None, None, None] * torch.randn(3, 1, 1)
    method = create("dial", {"start": "probe", "head": True, "pseudo_labels": 0.3})
    both = Images(images.split(16), labels, images.split(16))
    trainee: Trainee = method.prepare(replace(backbone(), pretrained=True))
    features = extract(trainee, images.split(16), "target").features
    first = method.begin(trainee, both)
    candidate = first["target"]
    torch.testing.assert_close(candidate.network(images), candidate.logits, atol=1e-4, rtol=1e-4)
    assert not len(trainee.extra.labels)  # pseudo-labels wait for the first refit
    method.refresh(trainee, both, first)
    assert len(trainee.extra.labels) == len(trainee.extra.weights) == 60
    probe = LogisticRegression(C=0.1, max_iter=1000).fit(features, labels)
    weight = trainee.network[5][0].weight.detach()
    np.testing.assert_allclose(weight, probe.coef_, atol=1e-3)

    fresh = create("dial", {"head": True})
    assert fresh.begin(fresh.prepare(backbone()), both) == {}  # features of random weights


def test_candidates_of_a_network_with_a_layer_before_its_classifier() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.LayerNorm(6), nn.Linear(6, 4))
    keys = network.state_dict().keys()
    labels = torch.arange(4).repeat(15)
    source = torch.randn(60, 3, 2, 2) + labels[:, None, None, None]
    target = 2 * source - 1
    images = Images(source.split(16), labels, target.split(16))
    method = create("dial", {"start": "probe", "head": True})
    trainee: Trainee = method.prepare(Backbone.of(network, image_size=2, pretrained=True))
    first = method.begin(trainee, images)["target"]
    trainee.train()
    for domain, part in (("source", source), ("target", target)):
        with use_domain(trainee, domain):
            trainee(part)
    method.finish(trainee, images)
    candidates = method.candidates(trainee, images, first)
    for candidate in (first, *candidates):
        with torch.no_grad():
            logits = candidate.network(target)
        torch.testing.assert_close(logits, candidate.logits, atol=1e-4, rtol=1e-4)
        assert candidate.network.state_dict().keys() == keys
    own = extract(trainee, target.split(16), "target")
    torch.testing.assert_close(candidates[0].logits, own.logits)
    torch.testing.assert_close(candidates[1].target, own.features)
