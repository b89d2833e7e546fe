"""The generalized normal distribution against SciPy's maximum likelihood."""

import numpy as np
import pytest
import scipy.stats
import torch

from dial import DialError, DomainAlignment
from dial.references import Generalized, Laplace, Normal, resolve


@pytest.mark.parametrize("exponent", [1.3, 1.5, 3.0, 6.0])
def test_location_and_scale_are_those_of_scipy(exponent: float) -> None:
    x = 2 * torch.randn(2000, 2).double() + 5
    location, square = Generalized(exponent).estimate(x)
    for channel in range(2):
        _, center, scale = scipy.stats.gennorm.fit(x[:, channel].numpy(), f0=exponent)
        wanted = center, scale / exponent ** (1 / exponent)  # its density has no 1 / p
        found = float(location[channel]), float(square[channel].sqrt())
        np.testing.assert_allclose(found, wanted, rtol=0.005)


@pytest.mark.parametrize("exponent", [1.5, 4.0])
def test_the_output_has_location_zero_and_scale_one(exponent: float) -> None:
    y = DomainAlignment(3, reference=Generalized(exponent))(torch.rand(4000, 3) * 7 - 2).detach()
    pull = (y.abs() ** (exponent - 1) * y.sign()).mean(0)
    torch.testing.assert_close(pull, torch.zeros(3), atol=5e-3, rtol=0)
    power = (y.abs() ** exponent).mean(0)
    torch.testing.assert_close(power, torch.ones(3), atol=1e-3, rtol=0)


def test_it_joins_laplace_and_normal() -> None:
    x = torch.randn(500, 4).double()
    mean, var = Normal().estimate(x)
    location, square = Generalized(2.0).estimate(x)
    torch.testing.assert_close(location, mean)
    torch.testing.assert_close(square, var)
    median, deviation = Laplace().estimate(x)
    location, square = Generalized(1.0).estimate(x)
    torch.testing.assert_close(location, median, atol=0.05, rtol=0)
    torch.testing.assert_close(square.sqrt(), deviation, atol=1e-3, rtol=0)


@pytest.mark.parametrize("exponent", [1.0, 1.25, 1.5, 3.0, 8.0])
def test_the_location_stays_within_the_data(exponent: float) -> None:
    sparse = torch.randn(400, 1).relu() * (torch.rand(400, 1) > 0.4)
    apart = torch.cat([torch.randn(200, 1), torch.randn(100, 1) + 8])
    for x in (sparse, apart, torch.randn(16, 1), torch.randn(300, 1).exp()):
        location, square = Generalized(exponent).estimate(x.double())
        assert x.min() <= location <= x.max()
        assert 0 < square <= (x.max() - x.min()) ** 2


def test_large_values_do_not_overflow() -> None:
    location, square = Generalized(8.0).estimate(1e6 * torch.randn(100, 2))
    assert location.isfinite().all()
    assert square.isfinite().all()


def test_names_and_wrong_numbers() -> None:
    assert resolve("generalized:3") == Generalized(3.0)
    for wrong in ("generalized:thin", "generalized:0.5", "generalized:9"):
        with pytest.raises(DialError, match="generalized"):
            resolve(wrong)
