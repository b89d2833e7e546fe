"""Fused code against the plain formula, NumPy and a compiler."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dial import DomainAlignment, use_domain
from dial.references import Normal, Statistics, _fused
from tests import oracles
from tests.references.small_layers import prior_of, small_layer, with_gradients

NAMES = ["normal", "epsilon", "laplace", "anchored"]


@pytest.mark.parametrize("domain", ["source", {"source": 5, "target": 4}])
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_plain_formula(
    name: str, domain: str | dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = small_layer(reference=name).double()
    plain = copy.deepcopy(fused)
    x, g = torch.randn(2, 9, 5, 4, 4, dtype=torch.float64)
    with use_domain(fused, domain):
        expected = with_gradients(fused, x, g)
    monkeypatch.setattr(_fused, "_has_kernels", lambda x: False)
    monkeypatch.setattr(_fused, "processes", lambda: 2)  # nor by torch's own batch norm
    with use_domain(plain, domain):
        results = with_gradients(plain, x, g)
    states = (plain.state_dict().values(), fused.state_dict().values())
    for a, b in [*zip(results, expected, strict=True), *zip(*states, strict=True)]:
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-9)


class Doubled(Normal):
    """A Normal with another scale."""

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:
        mean, square = super().transform(statistics, prior)
        return mean, 4 * square


def test_subclasses_keep_their_own_formula() -> None:
    x = torch.randn(20, 3)
    y, normal = DomainAlignment(3, reference=Doubled())(x), DomainAlignment(3)(x)
    torch.testing.assert_close(2 * y, normal, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", NAMES)
def test_hard_numbers_and_memory_format(name: str, layout: torch.memory_format) -> None:
    layer = small_layer(reference=name)
    if layer.prior is not None:
        layer.prior_location = torch.full((5,), 1e4)
    x = torch.randn(16, 5, 8, 8) + 1e4
    x[:, 2] = 7.0  # a constant channel
    x = x.contiguous(memory_format=layout).requires_grad_()
    with use_domain(layer, {"source": 10, "target": 6}):
        y = layer(x)
    y.square().sum().backward()
    assert y.is_contiguous(memory_format=layout)
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=layout)
    assert bool(y.isfinite().all())
    assert bool(x.grad.isfinite().all())
    for part in (slice(0, 10), slice(10, 16)):
        piece = x.detach().double().numpy()[part]
        rest = [0, 1, 3, 4]
        expected = oracles.align(name, piece[:, rest], _prior_of_channels(layer, rest))
        # float32 holds 1e4 to within 5e-4 only, and torch's own kernel sums in float32.
        np.testing.assert_allclose(y.detach().numpy()[part][:, rest], expected, atol=2e-2)
    if layer.prior is None:
        assert y[:, 2].abs().max() < 1e-3


def _prior_of_channels(
    layer: DomainAlignment, rest: list[int]
) -> tuple[oracles.Array, oracles.Array] | None:
    prior = prior_of(layer)
    return None if prior is None else (prior[0][rest], prior[1][rest])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_keeps_statistics_in_float32(name: str, dtype: torch.dtype) -> None:
    layer = small_layer(8, reference=name)
    conv = nn.Conv2d(3, 8, 3)
    images = torch.randn(12, 3, 10, 10)
    with torch.autocast("cpu", dtype=dtype), use_domain(layer, {"source": 8, "target": 4}):
        x = conv(images)
        y = layer(x)
    assert x.dtype == y.dtype == dtype
    y.float().square().sum().backward()
    assert conv.weight.grad is not None
    assert bool(conv.weight.grad.isfinite().all())
    assert layer.location is not None
    assert layer.location.dtype == torch.float32
    part = x.detach().double().numpy()[:8]
    expected = oracles.align(name, part, prior_of(layer))
    np.testing.assert_allclose(y.detach().float().numpy()[:8], expected, atol=3e-2, rtol=1e-2)
    location, _ = oracles.location_and_scale(
        "laplace" if name == "laplace" else "normal", part, None
    )
    np.testing.assert_allclose(layer.location[0].numpy(), 0.1 * location, atol=1e-5, rtol=1e-4)
    with torch.autocast("cpu", dtype=dtype):
        assert bool(layer.eval()(x).isfinite().all())


def test_sums_over_a_batch_may_exceed_half_precision() -> None:
    layer = small_layer(reference="normal")
    x, g = torch.randn(100, 5, 4, 4), torch.randn(100, 5, 4, 4) + 500
    with use_domain(layer, {"source": 60, "target": 40}):
        expected, *_ = with_gradients(layer, x.half().float(), g.half().float())[1:]
        dx, *_ = with_gradients(layer, x.half(), g.half())[1:]
    torch.testing.assert_close(dx.float(), expected, atol=2.0, rtol=1e-2)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("domain", ["source", {"source": 5, "target": 4}])
@pytest.mark.parametrize("name", [*NAMES, "student"])
def test_input_is_kept_until_the_backward_pass_and_no_longer(
    name: str, domain: str | dict[str, int], strided: bool
) -> None:
    layer = small_layer(reference=name)
    x = torch.randn(18 if strided else 9, 5, 4, 4, requires_grad=True)
    with use_domain(layer, domain):
        y = layer((2 * x)[::2] if strided else 2 * x)  # which nothing else refers to
    kept = layer.centered()
    assert [len(part) for part in kept] == ([9] if domain == "source" else [5, 4])
    del kept
    y.sum().backward()
    assert layer.centered() == []


@pytest.mark.parametrize("name", NAMES)
def test_compiled_layer_equals_eager(name: str) -> None:
    layer = small_layer(reference=name)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, backend="aot_eager")
    x, g = torch.randn(9, 5, 4), torch.randn(9, 5, 4)
    for domain in ("source", {"source": 6, "target": 3}):
        with use_domain(layer, domain):
            mine = with_gradients(compiled, x, g)
        with use_domain(eager, domain):
            theirs = with_gradients(eager, x, g)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert layer.location is not None
    assert eager.location is not None
    torch.testing.assert_close(layer.location, eager.location)
    assert layer.num_batches_tracked.tolist() == [2, 1]
