"""DomainAlignment against torch's batch norm and NumPy."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dial import DialError, DomainAlignment, use_domain
from dial.references import Anchored, Laplace, Normal, Reference, Statistics
from tests import oracles

NAMES = ["normal", "epsilon", "laplace", "anchored"]
SHAPES = [(16, 5), (8, 5, 7), (6, 5, 4, 3), (4, 5, 3, 2, 2)]


def anchored_layer(
    channels: int = 5, reference: str = "anchored", **options: Any
) -> DomainAlignment:
    """A layer with a prior, as `convert` makes it of a pretrained BatchNorm."""
    layer = DomainAlignment(channels, reference=reference, **options)
    if layer.reference.uses_prior():
        layer.prior_location = torch.linspace(-1, 1, channels)
        layer.prior_spread = torch.linspace(0.5, 2, channels)
    return layer


def prior_of(layer: DomainAlignment) -> tuple[oracles.Array, oracles.Array] | None:
    if layer.prior is None:
        return None
    location, spread = layer.prior
    return location.double().numpy(), spread.double().numpy()


def with_gradients(layer: nn.Module, x: Tensor, g: Tensor) -> list[Tensor]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], g)]


@pytest.mark.parametrize("eps", [1e-5, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_normal_is_batch_norm_on_each_domain_alone(shape: tuple[int, ...], eps: float) -> None:
    layer = DomainAlignment(5, reference=Normal(eps=eps))
    for domain in ("source", "target"):
        norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
        plain = norm[len(shape)](5, eps=eps)
        nn.init.uniform_(plain.weight), nn.init.uniform_(plain.bias)
        layer.weight, layer.bias = plain.weight, plain.bias
        for _ in range(3):
            x, g = 2 * torch.randn(shape) + 3, torch.randn(shape)
            with use_domain(layer, domain):
                mine = with_gradients(layer, x, g)
            for a, b in zip(mine, with_gradients(plain, x, g), strict=True):
                torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
        statistics = layer.statistics(domain)
        assert statistics is not None
        torch.testing.assert_close(statistics.location, plain.running_mean, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(statistics.spread, plain.running_var, atol=1e-6, rtol=1e-6)
        x = torch.randn(shape)
        with use_domain(layer.eval(), domain):
            torch.testing.assert_close(layer(x), plain.eval()(x), atol=1e-6, rtol=1e-6)
        layer.train()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_reference_equals_numpy(name: str, shape: tuple[int, ...]) -> None:
    layer = anchored_layer(reference=name)
    x = torch.randn(shape).exp() - 1
    y = layer(x)
    expected = oracles.align(name, x.double().numpy(), prior_of(layer))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_running_statistics_serve_eval_mode(name: str) -> None:
    layer = anchored_layer(reference=name, momentum=1.0)
    x = torch.randn(64, 5, 6, 6) * 3 + 1
    with torch.no_grad():
        trained = layer(x)
        frozen = layer.eval()(x)
    # The running variance is the unbiased one, as in torch: 1 / 2304 larger here.
    torch.testing.assert_close(frozen, trained, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_momentum_is_torchs(momentum: float | None) -> None:
    layer, plain = DomainAlignment(3, momentum=momentum), nn.BatchNorm1d(3, momentum=momentum)
    for _ in range(4):
        x = torch.randn(10, 3) + 5
        with use_domain(layer, "source"):
            layer(x)
        plain(x)
    statistics = layer.statistics("source")
    assert statistics is not None
    torch.testing.assert_close(statistics.location, plain.running_mean)
    torch.testing.assert_close(statistics.spread, plain.running_var)
    assert layer.num_batches_tracked.tolist() == [4, 0]


def test_laplace_output_has_median_zero_and_mean_absolute_value_one() -> None:
    for count in (101, 100):
        y = DomainAlignment(7, reference="laplace")(torch.randn(count, 7) ** 3 + 4).detach()
        assert np.abs(np.median(y.numpy(), axis=0)).max() < 1e-6
        torch.testing.assert_close(y.abs().mean(0), torch.ones(7))


def test_anchored_reaches_from_batch_norm_to_the_pretrained_network() -> None:
    x, mean0, var0 = torch.randn(20, 5, 3, 3) * 2 + 1, torch.randn(5), torch.rand(5) + 0.5
    for weight, expected in [
        (1.0, F.batch_norm(x, None, None, training=True)),
        (1e-7, F.batch_norm(x, mean0, var0)),
    ]:
        layer = DomainAlignment(5, reference=Anchored(weight))
        layer.prior_location, layer.prior_spread = mean0, var0
        torch.testing.assert_close(layer(x), expected, atol=2e-6, rtol=2e-6)


def test_anchored_without_a_prior_is_normal() -> None:
    x = torch.randn(20, 5)
    anchored, normal = DomainAlignment(5, reference="anchored"), DomainAlignment(5)
    torch.testing.assert_close(anchored(x), normal(x), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(7, 3), (6, 3), (3, 3, 2, 2), (4, 3, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str, shape: tuple[int, ...], affine: bool) -> None:
    layer = anchored_layer(3, reference=name, affine=affine).double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def alone(x: Tensor, *_: Tensor) -> Tensor:
        return layer(x)

    def jointly(x: Tensor, *_: Tensor) -> Tensor:
        with use_domain(layer, {"target": 2, "source": len(x) - 2}):
            return layer(x)

    assert torch.autograd.gradcheck(alone, (x, *layer.parameters()))
    if shape[0] > 3 or len(shape) > 2:
        assert torch.autograd.gradcheck(jointly, (x, *layer.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_joint_pass_equals_separate_passes(name: str) -> None:
    joint = anchored_layer(reference=name)
    assert joint.weight is not None
    nn.init.uniform_(joint.weight)
    separate = copy.deepcopy(joint)
    x, g = torch.randn(11, 5, 4, 4) * 2 + 1, torch.randn(11, 5, 4, 4)
    x[7:] += 3
    with use_domain(joint, {"source": 7, "target": 4}):
        together = with_gradients(joint, x, g)
    with use_domain(separate, "source"):
        first = with_gradients(separate, x[:7], g[:7])
    with use_domain(separate, "target"):
        second = with_gradients(separate, x[7:], g[7:])
    for index in (0, 1):  # output and gradient of the input
        apart = torch.cat([first[index], second[index]])
        torch.testing.assert_close(together[index], apart, atol=1e-6, rtol=1e-6)
    for index in (2, 3):  # gradients of the shared affine
        apart = first[index] + second[index]
        torch.testing.assert_close(together[index], apart, atol=1e-5, rtol=1e-6)
    for key, value in joint.state_dict().items():
        torch.testing.assert_close(value, separate.state_dict()[key], atol=1e-6, rtol=1e-6)
    with torch.no_grad(), use_domain(joint.eval(), {"target": 4, "source": 7}):
        swapped = joint(torch.cat([x[7:], x[:7]]))
    with torch.no_grad(), use_domain(separate.eval(), "source"):
        torch.testing.assert_close(swapped[4:], separate(x[:7]), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), size=st.integers(2, 9), factor=st.floats(-1e3, 1e3))
def test_domains_are_isolated(name: str, seed: int, size: int, factor: float) -> None:
    torch.manual_seed(seed)
    layer = anchored_layer(3, reference=name)
    source, target = torch.randn(size, 3, 2), torch.randn(5, 3, 2)
    other = copy.deepcopy(layer)
    sizes = {"source": size, "target": 5}
    with use_domain(layer, sizes):
        y = layer(torch.cat([source, target]))
    with use_domain(other, sizes):
        y_other = other(torch.cat([source * factor + 1, target]))
    torch.testing.assert_close(y[size:], y_other[size:], atol=0, rtol=0)
    assert layer.location is not None
    assert other.location is not None
    assert torch.equal(layer.location[1], other.location[1])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), factor=st.floats(0.1, 100), shift=st.floats(-100, 100))
@pytest.mark.parametrize("name", ["normal", "laplace"])
def test_output_does_not_depend_on_shift_and_scale(
    name: str, seed: int, factor: float, shift: float
) -> None:
    torch.manual_seed(seed)
    layer = DomainAlignment(2, reference=name).double()
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer(x * factor + shift), atol=2e-3, rtol=2e-3)


def test_gradients_of_every_domain_reach_the_affine() -> None:
    layer = DomainAlignment(4, domains=("a", "b", "c"))
    for domain in layer.domains:
        layer.zero_grad()
        with use_domain(layer, domain):
            layer(torch.randn(8, 4)).pow(3).sum().backward()
        assert layer.weight is not None
        assert layer.bias is not None
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        assert bool((layer.weight.grad != 0).all())


def test_domain_without_samples_is_left_alone() -> None:
    layer = DomainAlignment(4)
    before = copy.deepcopy(layer.state_dict())
    x = torch.randn(6, 4)
    with use_domain(layer, {"source": 6, "target": 0}):
        torch.testing.assert_close(layer(x), F.batch_norm(x, None, None, training=True))
    assert torch.equal(layer.state_dict()["location"][1], before["location"][1])
    assert layer.num_batches_tracked.tolist() == [1, 0]
    with use_domain(layer, "source"):
        assert layer(torch.empty(0, 4, 2)).shape == (0, 4, 2)
    assert layer.num_batches_tracked.tolist() == [1, 0]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", NAMES)
def test_hard_numbers_and_memory_format(name: str, layout: torch.memory_format) -> None:
    layer = anchored_layer(reference=name)
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
        expected = oracles.align(name, piece[:, rest], _chosen(layer, rest))
        # float32 holds 1e4 to within 5e-4 only, and torch's own kernel sums in float32.
        np.testing.assert_allclose(y.detach().numpy()[part][:, rest], expected, atol=2e-2)
    if layer.prior is None:
        assert y[:, 2].abs().max() < 1e-3


def _chosen(layer: DomainAlignment, rest: list[int]) -> tuple[oracles.Array, oracles.Array] | None:
    prior = prior_of(layer)
    return None if prior is None else (prior[0][rest], prior[1][rest])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_keeps_statistics_in_float32(name: str, dtype: torch.dtype) -> None:
    layer = anchored_layer(8, reference=name)
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


def test_one_sample_is_an_error_that_names_layer_domain_and_shape() -> None:
    model = nn.Sequential(nn.Linear(4, 3), DomainAlignment(3))
    with (
        use_domain(model, {"source": 4, "target": 1}),
        pytest.raises(DialError, match=r"layer '1' .*domain 'target', got 1 sample .*\(5, 3\)"),
    ):
        model(torch.randn(5, 4))
    assert model.eval()(torch.randn(1, 4)).shape == (1, 3)


def test_wrong_channels_and_settings_are_errors() -> None:
    with pytest.raises(DialError, match=r"\(N, 3, ...\).*got shape \(2, 4\)"):
        DomainAlignment(3)(torch.randn(2, 4))
    with pytest.raises(DialError, match="one of the references anchored, epsilon, laplace, normal"):
        DomainAlignment(3, reference="cauchy")
    with pytest.raises(DialError, match="without estimate, transform"):
        DomainAlignment(3, reference=object())
    with pytest.raises(DialError, match="a class"):
        DomainAlignment(3, reference=Laplace)
    with pytest.raises(DialError, match=r"all different, got domains=\('a', 'a'\)"):
        DomainAlignment(3, domains=("a", "a"))
    with pytest.raises(DialError, match=r"in \(0, 1\].*got 0"):
        Anchored(0)


@pytest.mark.parametrize("name", NAMES)
def test_copies_pickles_and_state_dicts_are_equal(name: str) -> None:
    layer = anchored_layer(reference=name)
    layer(torch.randn(8, 5))
    with use_domain(layer, "source"):
        layer(torch.randn(8, 5))
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    restored = DomainAlignment(5, reference=name)
    restored.load_state_dict(layer.state_dict())  # makes room for the prior
    x = torch.randn(4, 5)
    expected = layer.eval()(x)  # of the target; a copy made inside the `with` is outside it
    for twin in [*copies, restored]:
        assert torch.equal(twin.eval()(x), expected)


class Uniform(Reference):
    """Midrange and half range: somebody else's reference, by the two methods it must have."""

    def estimate(self, x: Tensor) -> Statistics:
        values = x.transpose(0, 1).flatten(1)
        low, high = values.amin(1), values.amax(1)
        return Statistics((low + high) / 2, (high - low) / 2)

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:
        return statistics.location, statistics.spread.square() + 1e-12


def test_a_users_own_reference_works_everywhere() -> None:
    layer = DomainAlignment(3, reference=Uniform()).double()
    x = torch.randn(8, 3, 4, dtype=torch.float64, requires_grad=True)
    with use_domain(layer, {"source": 5, "target": 3}):
        y = layer(x)
    torch.testing.assert_close(y[:5].amax((0, 2)), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(y[5:].amin((0, 2)), -torch.ones(3, dtype=torch.float64))
    assert torch.autograd.gradcheck(layer, (x,))


@pytest.mark.parametrize("name", NAMES)
def test_compiled_layer_equals_eager(name: str) -> None:
    layer = anchored_layer(reference=name)
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
