"""AdaBN: trained on the source alone, then the target's statistics, the affine kept."""

import numpy as np
import pytest
import torch
from torch import nn

from dial import DialError, methods
from dial.backbones import Backbone

from .small import backbone, batch, cross_entropy, numpy


def test_the_loss_is_the_cross_entropy_of_the_source() -> None:
    method, sample = methods.create("adabn"), batch()
    plain = backbone().network.train()
    made = backbone()
    made.network.load_state_dict(plain.state_dict())
    trainee = method.prepare(made).train()
    (terms,) = method.terms(trainee, sample._replace(target=None), 0.0)
    expected = cross_entropy(numpy(plain(sample.source)), sample.labels)
    assert float(terms["cross_entropy"].detach()) == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
def test_the_predictor_normalizes_with_the_moments_of_all_target_images() -> None:
    method, made = methods.create("adabn"), backbone()
    made.network[1].weight.uniform_(0.5, 2)
    made.network[1].bias.uniform_(-1, 1)
    plain = backbone().network.eval()
    plain.load_state_dict(made.network.state_dict())
    trainee = method.prepare(made)
    sample = batch(source=12, target=10)
    images = methods.Images(sample.source.split(4), sample.labels, sample.target.split(4))
    unadapted = method.unadapted(trainee, images.source)
    assert unadapted is not None
    torch.testing.assert_close(unadapted(sample.target), plain(sample.target))
    method.finish(trainee, images)
    activations = numpy(plain[0](sample.target))
    plain[1].running_mean.copy_(torch.from_numpy(activations.mean((0, 2, 3))))
    plain[1].running_var.copy_(torch.from_numpy(activations.var((0, 2, 3))))
    logits = method.predictor(trainee, images)(sample.target)
    np.testing.assert_allclose(logits, plain(sample.target), atol=1e-5)


@pytest.mark.parametrize(("statistics", "trains"), [("batch", True), ("frozen", False)])
def test_statistics_in_training(statistics: str, trains: bool) -> None:
    trainee = methods.create("adabn", {"statistics": statistics}).prepare(backbone()).train()
    assert trainee.network[1].training == trains
    assert trainee.network[0].training


def test_a_network_without_batch_norm_is_refused() -> None:
    own = Backbone.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), name="own", image_size=2)
    with pytest.raises(DialError, match="whose statistics are replaced, got own, without any"):
        methods.create("adabn").prepare(own)
