"""Ridge regression against scikit-learn's, from images and from sums over them."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from dial.head import Moments, ridge


@pytest.mark.parametrize("count", [8, 60])
def test_ridge_is_that_of_scikit_learn(count: int) -> None:
    features = torch.randn(count, 20, generator=torch.Generator().manual_seed(0))
    scores = torch.randn(count, 3, generator=torch.Generator().manual_seed(1))
    centered = (features - features.mean(0)).double()
    penalty = 0.1 * float(centered.square().sum()) / 20
    wanted = Ridge(alpha=penalty).fit(features.double(), scores.double())
    weight, bias = ridge(features, scores)
    np.testing.assert_allclose(weight, wanted.coef_, atol=1e-4)
    np.testing.assert_allclose(bias, wanted.intercept_, atol=1e-4)


def test_sums_give_the_regression_of_the_images() -> None:
    generator = torch.Generator().manual_seed(0)
    features = 1 + torch.randn(40, 9, generator=generator, dtype=torch.float64)
    scores = torch.rand(40, 3, generator=generator, dtype=torch.float64)
    penalty = 0.1 * float((features - features.mean(0)).square().sum()) / 9
    oracle = Ridge(alpha=penalty).fit(features.numpy(), scores.numpy())
    first, second = (
        Moments.of(features[part], scores[part]) for part in (slice(0, 15), slice(15, None))
    )
    weight, bias = first.join(second).regress()
    torch.testing.assert_close(weight, torch.from_numpy(oracle.coef_))
    torch.testing.assert_close(bias, torch.from_numpy(oracle.intercept_))
