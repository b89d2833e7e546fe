"""Middle values against NumPy's median, by sorting and by probing."""

import numpy as np
import pytest
import torch

from dial.references import _medians
from tests import oracles

KINDS = ["normal", "skewed", "tied", "constant", "infinite", "shifted"]


def channels(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    x = torch.randn(shape)
    if kind == "skewed":
        x = (3 * x).exp()
    if kind == "tied":
        x = (2 * x).round()
    if kind == "constant":
        x[:, ::2] = 3.3
    if kind == "infinite":
        x[0, 0, 0], x[-1, 1, 0] = torch.inf, -torch.inf
    if kind == "shifted":
        x = x * 1e-3 + 1e4
    return x


@pytest.mark.parametrize("probing", [True, False])
@pytest.mark.parametrize(
    "shape", [(256, 6, 1), (255, 6, 1), (97, 5, 4), (6, 4, 35), (3, 2, 1), (2, 3, 1)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_numpys_median(
    kind: str, shape: tuple[int, ...], probing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_medians, "_FEW_VALUES", 0 if probing else 10**9)
    x = channels(kind, shape)
    lower, upper = _medians.middle(x)
    values = oracles.channels_first(x.double().numpy())
    ordered = np.sort(values, axis=1)
    count = values.shape[1]
    assert np.array_equal(_medians.at(x, lower), ordered[:, (count - 1) // 2])
    assert np.array_equal(_medians.at(x, upper), ordered[:, count // 2])


def test_large_batches_are_probed_and_right() -> None:
    x = torch.randn(4704, 64, 1) ** 3 + 1
    assert x.numel() > _medians._FEW_VALUES
    median = _medians.median(x)
    np.testing.assert_allclose(median, np.median(x[:, :, 0].double().numpy(), axis=0), rtol=1e-6)


def test_any_strides_are_taken() -> None:
    x = torch.randn(64, 4704, 1).transpose(0, 1)
    median = _medians.median(x)
    np.testing.assert_allclose(median, np.median(x[:, :, 0].double().numpy(), axis=0), rtol=1e-6)
