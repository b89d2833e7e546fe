"""Student's t against SciPy's maximum likelihood."""

import numpy as np
import pytest
import scipy.stats
import torch

from dial import DialError, DomainAlignment
from dial.references import Normal, Student, resolve


@pytest.mark.parametrize("freedom", [2.0, 4.0, 30.0])
def test_location_and_scale_are_those_of_scipy(freedom: float) -> None:
    x = 2 * torch.distributions.StudentT(3.0).sample((2000, 2)).double() + 5
    location, square = Student(freedom).estimate(x)
    for channel in range(2):
        _, *wanted = scipy.stats.t.fit(x[:, channel].numpy(), fdf=freedom)
        found = float(location[channel]), float(square[channel].sqrt())
        np.testing.assert_allclose(found, wanted, rtol=0.02)


def test_the_output_has_location_zero_and_scale_one() -> None:
    y = DomainAlignment(3, reference="student")(torch.randn(4000, 3) * 7 - 2).detach()
    for channel in y.t().double().numpy():
        _, location, scale = scipy.stats.t.fit(channel, fdf=4)
        assert (location, scale) == pytest.approx((0, 1), abs=0.01)


def test_outliers_move_it_less_than_a_mean() -> None:
    x = torch.randn(200, 1)
    spoilt = torch.cat([x, torch.full((10, 1), 50.0)])
    moves = []
    for reference in (Student(2.0), Normal()):
        moves.append(abs(float(reference.estimate(spoilt)[0] - reference.estimate(x)[0])))
    assert moves[0] < 0.1 * moves[1]


def test_names_and_wrong_numbers() -> None:
    assert resolve("student:7") == Student(7.0)
    for wrong in ("student:many", "student:0.5", "student:nan"):
        with pytest.raises(DialError, match="student"):
            resolve(wrong)
