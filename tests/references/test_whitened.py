"""Whitened against NumPy's covariance and Cholesky factor."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dial import DialError, DomainAlignment, convert, methods, use_domain
from dial.backbones import Backbone
from dial.references import Normal, Statistics, Whitened, resolve
from tests import oracles
from tests.references.small_layers import SHAPES, with_gradients

EXACT = Whitened(group=3, shrinkage=1e-12, eps=1e-12)


def correlated(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Values whose neighboring channels are correlated, with other means and scales each."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x + 0.7 * x.roll(1, dims=1) - 0.4 * x.roll(2, dims=1)
    channels = torch.arange(shape[1]).view(1, -1, *[1] * (len(shape) - 2))
    return x * (1 + channels) + 10 * channels - 5


def expected(x: Tensor, reference: Whitened) -> oracles.Array:
    """The whitened batch by NumPy, group by group."""
    values = oracles.channels_first(x.double().numpy())
    y = np.empty_like(values)
    for start in range(0, len(values), reference.group):
        part = values[start : start + reference.group]
        covariance = np.cov(part, bias=True).reshape(len(part), len(part))
        e, diagonal = reference.shrinkage, np.diag(np.diag(covariance))
        square = (1 - e) * covariance + e * diagonal + reference.eps * np.eye(len(part))
        centered = part - part.mean(1, keepdims=True)
        y[start : start + reference.group] = np.linalg.solve(np.linalg.cholesky(square), centered)
    return np.moveaxis(y.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)


@pytest.mark.parametrize("group", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape: tuple[int, ...], group: int) -> None:
    reference = Whitened(group, shrinkage=0.01)
    x = correlated(shape)
    y = DomainAlignment(5, reference=reference).double()(x)
    np.testing.assert_allclose(y.detach().numpy(), expected(x, reference), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("channels", [3, 6, 7])
def test_the_output_has_mean_zero_and_identity_covariance_in_each_group(channels: int) -> None:
    layer = DomainAlignment(channels, reference=EXACT).double()
    y = layer(correlated((40, channels, 3, 2))).detach().numpy()
    values = oracles.channels_first(y)
    assert np.abs(values.mean(1)).max() < 1e-9
    for start in range(0, channels, 3):
        covariance = np.atleast_2d(np.cov(values[start : start + 3], bias=True))
        np.testing.assert_allclose(covariance, np.eye(len(covariance)), atol=1e-5)


def test_the_default_is_close_to_the_identity_in_float32() -> None:
    y = DomainAlignment(8, reference="whitened")(correlated((500, 8)).float()).detach().numpy()
    for start in (0, 4):
        covariance = np.cov(y[:, start : start + 4].T, bias=True)
        np.testing.assert_allclose(covariance, np.eye(4), atol=0.02)


def test_groups_of_one_channel_are_normal() -> None:
    x, g = torch.randn(2, 12, 5, 4)
    one, normal = DomainAlignment(5, reference=Whitened(1)), DomainAlignment(5, reference=Normal())
    for mine, theirs in zip(with_gradients(one, x, g), with_gradients(normal, x, g), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    for key, value in normal.state_dict().items():
        torch.testing.assert_close(one.state_dict()[key].view(value.shape), value)
    x = torch.randn(3, 5, 4)
    torch.testing.assert_close(one.eval()(x), normal.eval()(x), atol=1e-5, rtol=1e-5)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), shift=st.floats(-100, 100))
def test_a_shift_changes_nothing_and_no_mixing_within_a_group_is_left(
    seed: int, shift: float
) -> None:
    x = correlated((30, 6, 2), seed)
    layer = DomainAlignment(6, reference=EXACT).double()
    torch.testing.assert_close(layer(x + shift), layer(x), atol=1e-6, rtol=1e-6)
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    mixing = mixing @ mixing.T + 0.1 * torch.eye(3, dtype=torch.float64)
    mixed = x.clone()
    mixed[:, :3] = torch.einsum("ij,njl->nil", mixing, x[:, :3])
    y = layer(mixed).detach()
    values = oracles.channels_first(y.numpy())
    for start in (0, 3):
        np.testing.assert_allclose(
            np.cov(values[start : start + 3], bias=True), np.eye(3), atol=1e-5
        )
    torch.testing.assert_close(y[:, 3:], layer(x)[:, 3:].detach())  # another group's business


@pytest.mark.parametrize("shape", [(9, 4), (4, 4, 3)])
@pytest.mark.parametrize("group", [2, 3, 4])
def test_gradcheck(shape: tuple[int, ...], group: int) -> None:
    layer = DomainAlignment(4, reference=Whitened(group)).double()
    nn.init.uniform_(layer.weight, 0.5, 1.5)
    x = correlated(shape).requires_grad_()

    def align(x: Tensor, *_: Tensor) -> Tensor:
        with use_domain(layer, {"source": len(x) // 2, "target": len(x) - len(x) // 2}):
            return layer(x)

    assert torch.autograd.gradcheck(align, (x, *layer.parameters()))
    assert torch.autograd.gradcheck(layer.eval(), (x,))


def test_running_covariances_are_unbiased_averages() -> None:
    layer = DomainAlignment(6, reference=Whitened(3), momentum=None)
    batches = [correlated((20, 6), seed) for seed in range(3)]
    for batch in batches:
        layer(batch.float())
    statistics = layer.statistics("target")
    assert statistics is not None
    assert statistics.spread.shape == (6, 3)
    for start in (0, 3):
        parts = [np.cov(batch[:, start : start + 3].T.numpy()) for batch in batches]
        own = statistics.spread[start : start + 3]
        np.testing.assert_allclose(own, np.mean(parts, axis=0), rtol=1e-4, atol=1e-3)
    untouched = layer.statistics("source")
    assert untouched is not None
    assert torch.equal(untouched.spread, torch.eye(3).repeat(2, 1))


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
def test_conversion_keeps_a_pretrained_networks_output(eps: float) -> None:
    norm = nn.BatchNorm2d(6, eps=eps)
    nn.init.uniform_(norm.weight), nn.init.normal_(norm.bias)
    nn.init.normal_(norm.running_mean), nn.init.uniform_(norm.running_var, 1e-6, 1e3)
    model = nn.Sequential(norm).eval()
    x = torch.randn(5, 6, 3, 3)
    before, weight = model(x).detach(), norm.weight.detach().clone()
    converted = convert(model, reference="whitened:4")
    torch.testing.assert_close(converted(x).detach(), before, atol=1e-5, rtol=1e-5)
    assert torch.equal(converted[0].weight, weight)  # there is nothing to absorb
    assert converted[0].weight is norm.weight


def test_every_scale_comes_out_with_variance_one() -> None:
    scales = torch.logspace(-1, 6, 8)
    y = DomainAlignment(8, reference="whitened")(torch.randn(400, 8) * scales).detach()
    torch.testing.assert_close(y.var(0, correction=0), torch.ones(8), atol=5e-3, rtol=0)


def test_few_values_constant_and_equal_channels_stay_finite() -> None:
    layer = DomainAlignment(8, reference="whitened:8")
    x = torch.randn(2, 8) * 1e3
    x[:, 3], x[:, 5] = 7.0, x[:, 4]
    x.requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert bool(y.isfinite().all())
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_what_is_not_finite_is_seen() -> None:
    x = torch.randn(6, 4)
    x[0, 0] = float("nan")
    assert bool(DomainAlignment(4, reference="whitened")(x)[:, 0].isnan().all())


@pytest.mark.parametrize("channels", [8, 6])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_memory_format_and_statistics_of_half_precision(
    layout: torch.memory_format, channels: int
) -> None:
    layer = DomainAlignment(channels, reference="whitened")
    conv = nn.Conv2d(3, channels, 3)
    images = torch.randn(12, 3, 10, 10).contiguous(memory_format=layout)
    with torch.autocast("cpu", dtype=torch.bfloat16), use_domain(layer, {"source": 8, "target": 4}):
        x = conv(images)
        y = layer(x)
    assert x.dtype == y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=layout)
    y.float().square().sum().backward()
    assert conv.weight.grad is not None
    assert bool(conv.weight.grad.isfinite().all())
    part = x.detach()[:8]
    wanted = expected(part, Whitened())
    np.testing.assert_allclose(y.detach().float().numpy()[:8], wanted, atol=6e-2, rtol=2e-2)
    assert layer.location is not None
    assert layer.spread is not None
    assert layer.location.dtype == layer.spread.dtype == torch.float32
    mean = part.double().mean((0, 2, 3))
    torch.testing.assert_close(layer.location[0].double(), 0.1 * mean, atol=1e-5, rtol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        frozen = layer.eval()(x)
    assert frozen.dtype == torch.bfloat16
    assert frozen.is_contiguous(memory_format=layout)


def test_a_compiled_layer_equals_eager() -> None:
    layer, x = DomainAlignment(6, reference="whitened"), correlated((9, 6, 4)).float()
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x), atol=1e-5, rtol=1e-5)


def test_statistics_can_be_set_and_stay_apart() -> None:
    layer = DomainAlignment(4, reference=Whitened(2)).eval()
    covariance = torch.tensor([[4.0, 1.0], [1.0, 2.0]]).repeat(2, 1)
    layer.set_statistics("target", Statistics(torch.arange(4.0), covariance))
    x = torch.randn(5, 4)
    factor = np.linalg.cholesky(covariance[:2].double().numpy())
    wanted = np.linalg.solve(factor, (x - torch.arange(4.0)).double().numpy()[:, :2].T).T
    np.testing.assert_allclose(layer(x)[:, :2].detach(), wanted, atol=2e-3)
    with use_domain(layer, "source"):
        torch.testing.assert_close(layer(x), x, atol=1e-4, rtol=1e-4)


def test_names_and_wrong_numbers() -> None:
    assert resolve("whitened", eps=1e-3) == Whitened(4, eps=1e-3)
    assert resolve("whitened:8") == Whitened(8)
    for wrong in ("whitened:0", "whitened:2.5", "whitened:-4", "whitened:nan", "whitened:inf"):
        with pytest.raises(DialError, match="a whole number of channels, 1 or more, in a group"):
            resolve(wrong)
    with pytest.raises(DialError, match=r"whitened:G with G, .* got 'whitened:all'"):
        resolve("whitened:all")
    for shrinkage in (0, 1.5, float("nan")):
        with pytest.raises(DialError, match=r"shrinkage in \(0, 1\]"):
            Whitened(shrinkage=shrinkage)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_layer_in_half_precision_runs_in_eval_mode(dtype: torch.dtype) -> None:
    layer = DomainAlignment(6, reference="whitened").to(dtype).eval()
    x = torch.randn(5, 6).to(dtype)
    torch.testing.assert_close(layer(x), x, atol=0.01, rtol=0.01)  # of variance 1, as it is


def test_a_probe_starts_a_network_with_a_whitened_layer_before_its_classifier() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.LayerNorm(6), nn.Linear(6, 4))
    method = methods.create("dial", {"start": "probe", "head": True, "reference": "whitened:4"})
    trainee = method.prepare(Backbone.of(network, image_size=2, pretrained=True))
    images, labels = torch.randn(60, 3, 2, 2), torch.arange(4).repeat(15)
    sample = methods.Images(images.split(16), labels, images.split(16))
    candidate = method.begin(trainee, sample)["target"]
    torch.testing.assert_close(candidate.network(images), candidate.logits, atol=1e-4, rtol=1e-4)
