"""DIAL: joint and separate passes, and the reference that `auto` stands for."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dial import DialError, DomainAlignment, methods, use_domain
from dial.backbones import Backbone
from dial.references import Anchored

from .small import backbone, batch, cross_entropy, entropy, numpy


@pytest.mark.parametrize("reference", ["normal", "epsilon", "laplace", "anchored"])
@pytest.mark.parametrize(("entropy", "sparsity"), [(0.5, 0.0), (0.5, 0.3), (0.0, 0.3), (0.0, 0.0)])
def test_joint_and_separate_passes_give_the_same_step(
    reference: str, entropy: float, sparsity: float
) -> None:
    gradients, values, statistics = [], [], []
    for passes in ("joint", "separate"):
        torch.manual_seed(1)
        method = methods.create(
            "dial",
            {"reference": reference, "entropy": entropy, "sparsity": sparsity, "passes": passes},
        )
        trainee = method.prepare(backbone()).train()
        sums: dict[str, float] = {}
        for part in method.terms(trainee, batch(), 0.0):
            sum(part.values()).backward()
            for key, value in part.items():
                sums[key] = sums.get(key, 0.0) + float(value.detach())
        values.append(sums)
        gradients.append([p.grad for p in trainee.parameters()])
        statistics.append([*trainee.buffers()])
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert ("sparsity" in values[0]) == (sparsity > 0)
    assert ("entropy" in values[0]) == (entropy > 0)
    for one, other in zip(
        [*gradients[0], *statistics[0]], [*gradients[1], *statistics[1]], strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_passes_are_one_of_three() -> None:
    with pytest.raises(DialError, match="passes to be one of auto, joint, separate"):
        methods.create("dial", {"passes": "both"})


def test_what_auto_stands_for() -> None:
    dial = methods.create("dial", {})
    assert dial.reference_for(backbone()) == "normal"
    pretrained = replace(backbone(), pretrained=True)
    assert dial.reference_for(pretrained) == "anchored:0.1"
    dial.prepare(pretrained)
    layer = pretrained.network.get_submodule("1")
    assert isinstance(layer, DomainAlignment)
    assert layer.reference == Anchored(0.1)


@pytest.mark.parametrize("passes", ["joint", "separate"])
def test_the_loss_is_the_mean_over_sources_and_over_targets(passes: str) -> None:
    several = replace(backbone(), sources=("a", "b"), targets=("c", "d", "e"))
    method = methods.create("dial", {"reference": "normal", "passes": passes, "sparsity": 0.3})
    trainee = method.prepare(several).train()
    plain = copy.deepcopy(trainee)
    sample = batch(8, 9)
    values: dict[str, float] = {}
    for terms in method.terms(trainee, sample, 0.5):
        sum(terms.values()).backward()
        for name, value in terms.items():
            values[name] = values.get(name, 0.0) + float(value.detach())
    # Each domain alone, through a network of its own.
    entropies, losses = [], []
    images = [*sample.source.split(4), *sample.target.split(3)]  # type: ignore[union-attr]
    for domain, part in zip("abcde", images, strict=True):
        with use_domain(plain, domain):
            logits = numpy(plain(part).logits)
        if domain in "ab":
            losses.append(cross_entropy(logits, sample.labels.split(4)["ab".index(domain)]))
        else:
            entropies.append(entropy(logits))
    assert values["cross_entropy"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert values["entropy"] == pytest.approx(0.2 * np.mean(entropies), rel=1e-5)
    for domain in "abcde":  # each has statistics of its own
        one, other = (m.network[1].statistics(domain) for m in (trainee, plain))
        torch.testing.assert_close(one, other)


def test_joint_and_separate_passes_agree_with_several_domains() -> None:
    gradients = []
    for passes in ("joint", "separate"):
        torch.manual_seed(1)
        several = replace(backbone(), sources=("a", "b"), targets=("c", "d"))
        options = {"reference": "normal", "passes": passes, "sparsity": 0.3}
        method = methods.create("dial", options | {"criterion": "information"})
        trainee = method.prepare(several).train()
        for terms in method.terms(trainee, batch(8, 6), 0.0):
            sum(terms.values()).backward()
        gradients.append([p.grad for p in trainee.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_what_cannot_be_folded_is_refused_before_the_training() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 3)
    )
    record = Backbone.of(network, image_size=8, append_after=(), insert_before=("1",))
    with pytest.raises(DialError, match="a convolution without groups"):
        methods.create("dial", {"reference": "whitened:2"}).prepare(record)
