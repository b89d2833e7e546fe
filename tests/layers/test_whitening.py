"""Folding whitened layers: the matrix goes into the layer before, or becomes a 1x1 layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dial import DialError, DomainAlignment, calibrate, convert, fold, use_domain
from dial.references import Whitened
from tests.layers.test_folding import NETWORKS, Branching, Standardized, ours, trained


def calibrated(model: nn.Module, x: Tensor, reference: str = "whitened:4") -> nn.Module:
    """The converted network with the statistics of two domains that differ."""
    model = convert(model.double(), reference)
    for layer in model.modules():
        if isinstance(layer, DomainAlignment):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
    calibrate(model, [x])
    calibrate(model, [3 * x - 1], domain="source")
    return model.eval()


def check(model: nn.Module, x: Tensor, *, atol: float = 1e-9, **options: Any) -> nn.Module:
    """Fold for both domains, compare, and return the predictor of the target."""
    with torch.no_grad():
        for domain in ("source", "target"):
            plain = fold(model, domain, **options)
            assert not ours(plain)
            assert not any(module.training for module in plain.modules())
            with use_domain(model, domain):
                torch.testing.assert_close(plain(x), model(x), atol=atol, rtol=atol)
    return plain


BEFORE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(3, 8, 3, padding=1, bias=False), (6, 3, 5, 5)),
    "grouped": (lambda: nn.Conv2d(6, 8, 3, groups=2), (6, 6, 5, 5)),
    "sequence": (lambda: nn.Conv1d(3, 8, 3), (6, 3, 9)),
    "volume": (lambda: nn.Conv3d(2, 8, 2), (6, 2, 4, 4, 4)),
    "linear": (lambda: nn.Linear(5, 8), (20, 5)),
}


def norm_for(shape: tuple[int, ...], channels: int = 8) -> nn.Module:
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    return kinds[len(shape)](channels)


@pytest.mark.parametrize("kind", BEFORE)
def test_the_matrix_goes_into_the_layer_before(kind: str) -> None:
    make, shape = BEFORE[kind]
    x = torch.randn(shape, dtype=torch.float64)
    original = nn.Sequential(make(), norm_for(shape), nn.ReLU())
    keys = original.state_dict().keys()
    model = calibrated(original, x)
    assert isinstance(check(model, x)[1], nn.Identity)
    assert check(model, x, fuse=False).state_dict().keys() == keys  # the architecture it had


@pytest.mark.parametrize(
    ("first", "shape", "inserted"),
    [
        (nn.Conv2d(8, 8, 3, groups=8), (6, 8, 5, 5), nn.Conv2d),  # depthwise
        (nn.Conv2d(8, 8, 3, groups=4), (6, 8, 5, 5), nn.Conv2d),  # groups of two
        (nn.Conv1d(8, 8, 3, groups=8), (6, 8, 9), nn.Conv1d),
        (nn.Conv3d(8, 8, 2, groups=8), (6, 8, 4, 4, 4), nn.Conv3d),
        (nn.ReLU(), (20, 8), nn.Linear),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), (20, 8), nn.Linear),
        (Standardized(8, 8, 1), (6, 8, 5, 5), nn.Conv2d),
    ],
)
def test_elsewhere_it_becomes_a_layer_of_its_own(
    first: nn.Module, shape: tuple[int, ...], inserted: type[nn.Module]
) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    model = calibrated(nn.Sequential(first, norm_for(shape), nn.ReLU()), x)
    fused, kept = check(model, x)[1], check(model, x, fuse=False)[1]
    assert [type(layer) for layer in fused] == [inserted, nn.Identity]
    assert [type(layer) for layer in kept] == [inserted, type(norm_for(shape))]
    if len(shape) > 2:
        assert fused[0].groups == 2


def test_channels_that_no_groups_divide() -> None:
    x = torch.randn(6, 10, 5, 5, dtype=torch.float64)
    model = calibrated(nn.Sequential(nn.Conv2d(10, 10, 3, groups=10), nn.BatchNorm2d(10)), x)
    assert check(model, x)[1][0].groups == 1
    model = calibrated(nn.Sequential(nn.Conv2d(10, 7, 3), nn.BatchNorm2d(7)), x)
    assert isinstance(check(model, x)[1], nn.Identity)


@pytest.mark.parametrize("traceable", [True, False])
def test_a_layer_that_feeds_others_too_is_left_alone(traceable: bool) -> None:
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    model = calibrated(Branching(traceable=traceable), x, "whitened:2")
    for fuse in (True, False):
        assert isinstance(check(model, x, fuse=fuse).norm[0], nn.Conv2d)


def test_an_appended_layer_is_mixed_also_where_the_network_hides_its_graph() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) if x.mean() < 1e9 else x

    x = torch.randn(20, 5, dtype=torch.float64)
    model = convert(Hidden().double(), Whitened(4), append_after=["linear"])
    calibrate(model, [x])
    calibrate(model, [3 * x - 1], domain="source")
    linear = check(model.eval(), x, fuse=False).linear
    assert type(linear) is nn.Linear


def test_tied_weights_stay_those_of_the_other_layer() -> None:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    x = torch.randn(20, 8, dtype=torch.float64)
    check(calibrated(nn.Sequential(first, nn.BatchNorm1d(8), nn.Tanh(), second), x), x, fuse=False)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_whole_networks(name: str, fuse: bool) -> None:
    original = NETWORKS[name]().double()
    keys = original.state_dict().keys()
    model = trained(original, "whitened")
    x = torch.randn(5, 3, 32, 32, dtype=torch.float64)
    plain = check(model, x, atol=1e-6, fuse=fuse)  # the deepest layers see six values a channel
    if name == "resnet18" and not fuse:  # no depthwise convolutions: the architecture it had
        assert {key for key in keys if not key.startswith("fc.")} <= plain.state_dict().keys()


def test_other_domains_and_networks_are_not_changed() -> None:
    x = torch.randn(6, 3, 5, 5, dtype=torch.float64)
    model = calibrated(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), x)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    fold(model)
    assert model[1].reference == Whitened(4)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_what_cannot_be_folded_is_an_error() -> None:
    model = nn.Sequential(nn.ReLU(), DomainAlignment(4, reference="whitened"))
    with pytest.raises(DialError, match="a linear layer or a convolution, got a DA-layer that has"):
        fold(model)
    bare = convert(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)), "whitened")
    with pytest.raises(DialError, match="statistics of domain 'target'"):
        fold(bare)
    calibrate(bare, [torch.randn(9, 4)])
    assert bare[0].statistics("source").spread.tolist() == torch.eye(4).tolist()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 5), (40, 6)),
        (nn.Linear(6, 5, bias=False), (10, 7, 6)),
        (nn.Conv2d(6, 5, 3), (10, 6, 8, 8)),
    ],
)
def test_whitened_layers_around_a_layer_are_multiplied_into_it(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, dtype=torch.float64) @ torch.randn(shape[-1], shape[-1]).double()
    model = nn.Sequential(layer).double()
    convert(model, "whitened:4", append_after=["0"], insert_before=["0"])
    for part in model.modules():
        if isinstance(part, DomainAlignment):
            nn.init.normal_(part.weight)  # type: ignore[arg-type]
            nn.init.normal_(part.bias)  # type: ignore[arg-type]
    calibrate(model, [x], domain="target")
    plain = fold(model.eval(), fuse=False)
    assert [type(part) for part in plain] == [type(layer)]  # type: ignore[union-attr]
    with torch.no_grad():
        torch.testing.assert_close(plain(x), model(x), atol=1e-9, rtol=1e-9)


def test_a_whitened_layer_needs_a_layer_to_be_multiplied_into() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1))
    convert(model, "whitened:2", insert_before=["0"])
    model(torch.randn(8, 4, 6, 6))
    with pytest.raises(DialError, match="a convolution without groups and zeros around its input"):
        fold(model)
