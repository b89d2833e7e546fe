"""The logistic distribution against SciPy's maximum likelihood."""

import numpy as np
import pytest
import scipy.stats
import torch

from dial import DomainAlignment
from dial.references import Logistic


@pytest.mark.parametrize("count", [16, 2000])
def test_location_and_scale_are_those_of_scipy(count: int) -> None:
    x = torch.randn(count, 2).double().exp()  # skewed
    location, square = Logistic().estimate(x)
    for channel in range(2):
        wanted = scipy.stats.logistic.fit(x[:, channel].numpy())
        found = float(location[channel]), float(square[channel].sqrt())
        np.testing.assert_allclose(found, wanted, rtol=0.01)


def test_the_output_solves_the_equations_of_the_maximum() -> None:
    y = DomainAlignment(3, reference="logistic")(torch.randn(4000, 3) * 7 - 2).detach()
    torch.testing.assert_close(torch.tanh(y / 2).mean(0), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close((y * torch.tanh(y / 2)).mean(0), torch.ones(3), atol=1e-3, rtol=0)
