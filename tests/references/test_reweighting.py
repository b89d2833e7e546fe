"""Gradients of estimates that have no closed form, against many steps that autograd unrolls."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dial.references import Generalized, Logistic, Reference, Student


def unrolled(x: Tensor, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Reweighted means until nothing changes, with gradients through all of them."""
    location = x.mean(0)
    square = x.var(0, correction=0)
    for _ in range(400):
        weights = weigh((x - location) / square.sqrt())
        location = (weights * x).sum(0) / weights.sum(0)
        square = (weights * (x - location) ** 2).mean(0)
    return location, square


@pytest.mark.parametrize(
    ("reference", "weigh"),
    [
        (Student(4.0), lambda z: 5 / (4 + z**2)),
        (Student(2.0), lambda z: 3 / (2 + z**2)),
        (Logistic(), lambda z: torch.tanh(z / 2) / z),
        (Generalized(2.5), lambda z: z.abs() ** 0.5),
    ],
)
@pytest.mark.parametrize("spread", [0.01, 30.0])
def test_gradients_are_those_of_unrolled_steps(
    reference: Reference, weigh: Callable[[Tensor], Tensor], spread: float
) -> None:
    x = (torch.randn(60, 3).double().exp() * spread - 4).requires_grad_()  # skewed
    g = torch.randn(2, 3).double()
    gradients = []
    for location, square in (reference.estimate(x), unrolled(x, weigh)):
        objective = (g[0] * location + g[1] * square.sqrt()).sum()
        gradients.append(torch.autograd.grad(objective, x)[0])
    found, wanted = gradients
    assert (found - wanted).norm() < 0.01 * wanted.norm()


@pytest.mark.parametrize("reference", [Student(2.0), Logistic(), Generalized(1.5)])
def test_channels_that_are_almost_constant_stay_finite(reference: Reference) -> None:
    x = torch.ones(20, 3)
    x[0, 1] = 2.0
    x[:, 2] += 1e-7 * torch.randn(20)
    x.requires_grad_()
    location, square = reference.estimate(x)
    gradient = torch.autograd.grad((location + (square + 1e-5).sqrt()).sum(), x)[0]
    for values in (location, square, gradient):
        assert values.isfinite().all()
    assert (square >= 0).all()
