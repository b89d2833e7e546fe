"""ReverseGrad: the domain loss, and the sign of its gradient on either side of the reversal."""

import math

import pytest
import torch

from dial import methods

from .small import terms


def test_it_trains_the_discriminator_and_reverses_the_gradient_of_the_features() -> None:
    progress = 0.4
    _, trainee, sample = terms("revgrad", progress)
    assert trainee.extra is not None
    assert sample.target is not None
    reversal = 2 / (1 + math.exp(-10 * progress)) - 1
    weights = next(trainee.network.parameters()), next(trainee.extra.parameters())
    trainee.extra.eval()  # no dropout, so that two passes are the same
    method = methods.create("revgrad")
    (again,) = method.terms(trainee, sample, progress)
    turned, learnt = torch.autograd.grad(again["domain"], weights)
    output = trainee(torch.cat([sample.source, sample.target]))
    discriminator = trainee.extra
    guesses = discriminator(output.features).squeeze(1)
    p = torch.sigmoid(guesses)
    plain = -(p[:9].log().mean() + (1 - p[9:]).log().mean()) / 2 * 0.1
    assert float(again["domain"].detach()) == pytest.approx(float(plain.detach()), rel=1e-4)
    straight, same = torch.autograd.grad(plain, weights)
    torch.testing.assert_close(turned, -reversal * straight, atol=1e-7, rtol=1e-3)
    torch.testing.assert_close(learnt, same, atol=1e-7, rtol=1e-3)
