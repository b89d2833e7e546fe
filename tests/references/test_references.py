"""What every registered reference must do, one of a user's own too, and how names resolve."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dial import DialError, DomainAlignment, calibrate, convert, fold, references, use_domain
from dial.references import REFERENCES, Laplace, Reference, Statistics, resolve
from tests.references.small_layers import small_layer, with_gradients

NAMES = REFERENCES.names()


@pytest.mark.parametrize("name", NAMES)
def test_running_statistics_serve_eval_mode(name: str) -> None:
    layer = small_layer(reference=name, momentum=1.0)
    x = torch.randn(64, 5, 6, 6) * 3 + 1
    with torch.no_grad():
        trained = layer(x)
        frozen = layer.eval()(x)
    # The running variance is the unbiased one, as in torch: 1 / 2304 larger here.
    torch.testing.assert_close(frozen, trained, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(7, 3), (6, 3), (3, 3, 2, 2), (4, 3, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str, shape: tuple[int, ...], affine: bool) -> None:
    layer = small_layer(3, reference=name, affine=affine).double()
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
    joint = small_layer(reference=name)
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
    layer = small_layer(3, reference=name)
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
    assert layer.spread is not None
    assert other.spread is not None
    assert torch.equal(layer.spread[1], other.spread[1])


@pytest.mark.parametrize("name", NAMES)
def test_constant_channels_and_large_values_stay_finite(name: str) -> None:
    layer = small_layer(reference=name)
    x = torch.randn(16, 5, 4, 4) + 1e3
    x[:, 2], x[:, 3] = 7.0, 1e4 * x[:, 3]
    x.requires_grad_()
    with use_domain(layer, {"source": 10, "target": 6}):
        y = layer(x)
    y.square().sum().backward()
    assert bool(y.isfinite().all())
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_keeps_statistics_in_float32(name: str) -> None:
    layer = small_layer(reference=name, momentum=1.0)
    x = (2 * torch.randn(64, 5, 4) + 1).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    statistics, own = layer.statistics("target"), layer.reference.estimate(x.double())
    assert statistics is not None
    own = layer.reference.tracked(own, 256)
    for value, wanted in zip(statistics, own, strict=True):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_is_converted_calibrated_and_folded(name: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=1e-3), nn.ReLU()).double()
    nn.init.uniform_(model[1].weight), nn.init.normal_(model[1].bias)
    nn.init.normal_(model[1].running_mean), nn.init.uniform_(model[1].running_var)
    x = 2 * torch.randn(20, 3, 5, 5, dtype=torch.float64) + 1
    pretrained = model.eval()(x)
    convert(model, reference=name)
    torch.testing.assert_close(model(x), pretrained, atol=1e-6, rtol=1e-6)
    calibrate(model, [x[:13], x[13:]])
    layer = model[1]
    statistics = layer.statistics("target")
    for value, wanted in zip(statistics, layer.reference.estimate(model[0](x)), strict=True):
        torch.testing.assert_close(value, wanted, atol=1e-6, rtol=1e-6)
    for fuse in (True, False):
        plain = fold(model, fuse=fuse)
        torch.testing.assert_close(plain(x), model(x), atol=1e-9, rtol=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), factor=st.floats(0.1, 100), shift=st.floats(-100, 100))
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("anchored", "epsilon")])
def test_output_does_not_depend_on_shift_and_scale(
    name: str, seed: int, factor: float, shift: float
) -> None:
    torch.manual_seed(seed)
    layer = DomainAlignment(2, reference=resolve(name, eps=1e-9)).double()
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer(x * factor + shift), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_copies_pickles_and_state_dicts_are_equal(name: str) -> None:
    layer = small_layer(reference=name)
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


def test_a_users_own_reference_is_converted_calibrated_and_folded() -> None:
    model = convert(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), reference=Uniform())
    x = torch.randn(20, 4)
    calibrate(model, [x[:7], x[7:]])
    y = model.eval()(x)
    torch.testing.assert_close(y.amax(0) / model[1].weight, torch.ones(3), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fold(model)(x), y, atol=1e-5, rtol=1e-5)


def test_every_reference_has_a_line() -> None:
    assert tuple(references.describe()) == NAMES
    assert all(references.describe().values())


def test_names_and_objects_that_are_no_reference_are_errors() -> None:
    with pytest.raises(DialError, match="one of the references anchored, epsilon, generalized,"):
        resolve("cauchy")
    with pytest.raises(DialError, match="without estimate, transform"):
        resolve(object())
    with pytest.raises(DialError, match="a class"):
        resolve(Laplace)
    for wrong, fix in (("normal:0.5", "write normal"), ("anchored:", "write anchored")):
        with pytest.raises(DialError, match=f"references, anchored, .* got '{wrong}'; fix: {fix}"):
            resolve(wrong)
