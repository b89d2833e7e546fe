"""calibrate against the statistics of all the data at once."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dial import DialError, DomainAlignment, calibrate, convert, use_domain
from tests import oracles

SIZES = [7, 1, 16, 3, 5]


def network(reference: str = "normal") -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 36, 5),
        nn.BatchNorm1d(5),
        nn.Dropout(0.5),
    )
    return convert(model, reference=reference)


def data() -> tuple[Tensor, list[Tensor]]:
    images = (
        torch.randn(sum(SIZES), 3, 8, 8) * torch.linspace(0.1, 3, sum(SIZES))[:, None, None, None]
    )
    return images, list(images.split(SIZES))


@pytest.mark.parametrize("reference", ["normal", "epsilon", "laplace", "anchored"])
def test_accumulates_all_batches_and_refines_deeper_layers(reference: str) -> None:
    model = network(reference)
    images, batches = data()
    modes = [module.training for module in model.modules()]
    calibrate(model, [(batch, "label") for batch in batches], domain="source")
    assert [module.training for module in model.modules()] == modes
    first, second = model[1], model[5]
    source, target = first.statistics("source"), first.statistics("target")
    assert torch.equal(target.location, torch.zeros(6))  # another domain's, untouched
    name = "laplace" if reference == "laplace" else "normal"
    with torch.no_grad(), use_domain(model.eval(), "source"):
        for layer, x in [(first, model[0](images)), (second, model[:5](images))]:
            values = oracles.channels_first(x.double().numpy())
            location, scale = oracles.location_and_scale(name, x.double().numpy())
            spread = scale if name == "laplace" else values.var(1)
            own = layer.statistics("source")
            np.testing.assert_allclose(own.location, location, atol=1e-5, rtol=1e-5)
            np.testing.assert_allclose(own.spread, spread, atol=1e-5, rtol=1e-5)
    assert source is not None


def test_covariances_are_those_of_the_whole_set() -> None:
    model = network("whitened:4")
    images, batches = data()
    calibrate(model, batches, domain="source")
    with torch.no_grad(), use_domain(model.eval(), "source"):
        for layer, x in [(model[1], model[0](images)), (model[5], model[:5](images))]:
            values = oracles.channels_first(x.double().numpy())
            own = layer.statistics("source")
            np.testing.assert_allclose(own.location, values.mean(1), atol=1e-5, rtol=1e-5)
            for start in range(0, len(values), 4):
                covariance = np.atleast_2d(np.cov(values[start : start + 4], bias=True))
                rows = own.spread[start : start + 4, : len(covariance)]
                np.testing.assert_allclose(rows, covariance, atol=1e-5, rtol=1e-5)


def test_one_pass_leaves_deeper_layers_close() -> None:
    one, two = network(), network()
    two.load_state_dict(one.state_dict())
    _, batches = data()
    calibrate(one, batches, passes=1)
    calibrate(two, batches, passes=2)
    assert torch.equal(one[1].location, two[1].location)
    assert not torch.equal(one[5].location, two[5].location)


@pytest.mark.parametrize(("reference", "passes"), [("normal", 2), ("laplace", 1)])
def test_errors_of_a_sample_are_not_built_upon(reference: str, passes: int) -> None:
    default, explicit = network(reference), network(reference)
    explicit.load_state_dict(default.state_dict())
    batches = [torch.randn(100, 3, 8, 8) for _ in range(3)]  # 10,800 values a channel
    calibrate(default, batches)
    calibrate(explicit, batches, passes=passes)
    for one, other in zip(default.buffers(), explicit.buffers(), strict=True):
        assert torch.equal(one, other)


def test_statistics_are_made_where_the_batch_norm_had_none() -> None:
    model = convert(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)))
    x = torch.randn(20, 3) + 2
    calibrate(model, [x])
    layer = model[0]
    torch.testing.assert_close(layer.statistics("target").location, x.mean(0))
    fresh = convert(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)))
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(fresh.eval()(x[:1]), model.eval()(x[:1]))


class Failing:
    """A loader that dies after its first batch."""

    def __iter__(self) -> Iterator[Tensor]:
        yield torch.randn(4, 3, 8, 8)
        raise OSError("disk")


def test_failure_halfway_leaves_everything_as_it_was() -> None:
    model = network().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(OSError, match="disk"):
        calibrate(model, Failing())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model[1].momentum == 0.1


def test_wrong_loaders_are_errors() -> None:
    with pytest.raises(DialError, match="got a loader without any"):
        calibrate(network(), [])
    with pytest.raises(DialError, match="none in the second pass"):
        calibrate(network(), iter([torch.randn(4, 3, 8, 8)]))
    with pytest.raises(DialError, match="begin with one, got a dict"):
        calibrate(network(), [{"image": 1}])
    with pytest.raises(DialError, match="a network with DA-layers"):
        calibrate(nn.Linear(2, 2), [torch.randn(2, 2)])
    with pytest.raises(DialError, match="one of the domains source, target"):
        calibrate(network(), data()[1], domain="webcam")


def test_layer_types() -> None:
    assert all(isinstance(network()[i], DomainAlignment) for i in (1, 5))
