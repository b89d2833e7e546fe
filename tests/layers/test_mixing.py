"""Mixing: the formula in NumPy, AutoDIAL once more in plain torch, and what it is a case of."""

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dial import DialError, DomainAlignment, calibrate, convert, fold, losses, use_domain
from dial.layers import FixedMixing, LearnedMixing, Mixing, mix
from dial.references import Anchored, Laplace, Normal, Statistics
from tests import oracles
from tests.oracles import Array

SIZES = {"source": 6, "target": 3}
IDENTITY = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
ANCHORED = [[0.3, 0.0, 0.7], [0.0, 0.3, 0.7]]


def batch(channels: int = 4, *, seed: int = 0) -> Tensor:
    """A joint batch whose domains differ, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(9, channels, 5, 2, generator=generator, dtype=torch.float64)
    x[6:] = 2 * x[6:] + 1
    return x


def layer_with(mixing: object, channels: int = 4, **settings: object) -> DomainAlignment:
    """A layer in float64 with a prior and an affine that is not the initial one."""
    layer = DomainAlignment(channels, mixing=mixing, **settings)  # type: ignore[arg-type]
    layer.prior_location = torch.linspace(-1, 1, channels)
    layer.prior_spread = torch.linspace(0.5, 2, channels)
    for parameter, value in ((layer.weight, 1.5), (layer.bias, -0.5)):
        assert parameter is not None
        parameter.data = torch.linspace(value, value + 1, channels)
    return layer.double()


def set_own_weight(layer: DomainAlignment, value: float) -> LearnedMixing:
    assert isinstance(layer.mixing, LearnedMixing)
    layer.mixing.own_weight.data.fill_(value)
    return layer.mixing


def results(
    layer: nn.Module, x: Tensor, g: Tensor, domains: dict[str, int] | str = SIZES
) -> list[Tensor]:
    """The output, and the gradients of the input and all parameters."""
    x = x.clone().requires_grad_()
    with use_domain(layer, domains):
        y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], g)]


def mixture(weights: Sequence[float], means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and variance of a mixture, by its first two moments."""
    w = np.asarray(weights)[:, None]
    mean = (w * means).sum(0)
    return mean, (w * (variances + means**2)).sum(0) - mean**2


def test_the_mixture_is_that_of_its_samples() -> None:
    generator = np.random.default_rng(0)
    samples = [generator.normal(i, 1 + i, size=(n, 3)) for i, n in enumerate((40, 60, 100))]
    moments = [
        Statistics(*(torch.from_numpy(value) for value in (x.mean(0), x.var(0)))) for x in samples
    ]
    mean, var = mix(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), moments)
    together = np.concatenate(samples)
    np.testing.assert_allclose(mean, together.mean(0))
    np.testing.assert_allclose(var, together.var(0))


@pytest.mark.parametrize("reference", ["normal", "epsilon"])
@pytest.mark.parametrize("training", [True, False])
def test_outputs_are_those_of_the_formula(reference: str, training: bool) -> None:
    weights = [[0.6, 0.1, 0.3], [0.25, 0.75, 0.0]]
    layer = layer_with(FixedMixing(weights), reference=reference).train(training)
    x = batch()
    assert layer.prior is not None
    parts = [oracles.channels_first(part.numpy()) for part in x.split(list(SIZES.values()))]
    if training:
        means, variances = (np.stack([f(part, 1) for part in parts]) for f in (np.mean, np.var))
    else:
        assert layer.location is not None
        assert layer.spread is not None
        layer.location.normal_()
        layer.spread.uniform_(0.5, 2)
        means, variances = layer.location.numpy().copy(), layer.spread.numpy().copy()
    means, variances = (
        np.vstack([rows, row.numpy()])
        for rows, row in zip((means, variances), layer.prior, strict=True)
    )
    with use_domain(layer, SIZES), torch.no_grad():
        y = layer(x)
    assert layer.weight is not None
    assert layer.bias is not None
    weight, bias = (oracles.broadcast(p.detach().numpy(), x.numpy()) for p in layer.parameters())
    eps = 1.0 if reference == "epsilon" else 1e-5
    for row, part, out in zip(
        weights, x.split(list(SIZES.values())), y.split(list(SIZES.values())), strict=True
    ):
        mean, var = mixture(row, means, variances)
        location, scale = (
            oracles.broadcast(value, x.numpy()) for value in (mean, np.sqrt(var + eps))
        )
        expected = weight * (part.numpy() - location) / scale + bias
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)  # weights are float32


def autodial(x: Tensor, a: Tensor, weight: Tensor, bias: Tensor, sizes: list[int]) -> Tensor:
    """AutoDIAL from its equations, with the gradients of autograd, on a concatenated batch."""
    shape = (1, -1, *[1] * (x.dim() - 2))
    parts = x.split(sizes)
    means = [part.mean([0, 2, 3]) for part in parts]
    variances = [((p - m.view(shape)) ** 2).mean([0, 2, 3]) for p, m in zip(parts, means)]  # noqa: B905
    outputs = []
    for own, part in enumerate(parts):
        others = [i for i in range(len(parts)) if i != own]
        share = (1 - a) / len(others)
        mean = a * means[own] + sum(share * means[i] for i in others)
        second = a * (variances[own] + means[own] ** 2)
        second = second + sum(share * (variances[i] + means[i] ** 2) for i in others)
        scale = torch.sqrt(second - mean**2 + 1e-5)
        outputs.append((part - mean.view(shape)) / scale.view(shape))
    return torch.cat(outputs) * weight.view(shape) + bias.view(shape)


@pytest.mark.parametrize("sizes", [{"source": 6, "target": 3}, {"a": 3, "b": 4, "c": 2}])
@pytest.mark.parametrize("value", [1.0, 0.8, 0.5])
def test_autodial_is_the_papers(value: float, sizes: dict[str, int]) -> None:
    layer = layer_with("autodial", domains=tuple(sizes))
    own = set_own_weight(layer, value).own_weight
    x = batch()
    g = torch.randn_like(x)
    expected_x = x.clone().requires_grad_()
    a = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    leaves = [
        p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias) if p is not None
    ]
    expected = autodial(expected_x, a, leaves[0], leaves[1], list(sizes.values()))
    wanted = torch.autograd.grad(expected, [expected_x, *leaves, a], g)
    y, *gradients = results(layer, x, g, sizes)
    torch.testing.assert_close(y, expected.detach())
    for found, each in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(found, each)
    assert bool(gradients[-1] != 0)
    assert own.dim() == 0  # no weight decay


def test_gradients_are_those_of_finite_differences() -> None:
    layer = layer_with("autodial", channels=2)
    set_own_weight(layer, 0.7)
    x = batch(2)[:, :, :2, :1].requires_grad_()

    def run(x: Tensor, *_: Tensor) -> Tensor:
        with use_domain(layer, SIZES):
            return layer(x)  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(run, (x, *layer.parameters()))


@pytest.mark.parametrize("training", [True, False])
def test_the_pretrained_column_is_anchored(training: bool) -> None:
    mixed = layer_with(FixedMixing(ANCHORED)).train(training)
    anchored = layer_with(None, reference=Anchored(0.3)).train(training)
    x = batch()
    g = torch.randn_like(x)
    for layer in (mixed, anchored):
        assert layer.location is not None
        layer.location.add_(torch.arange(8.0).view(2, 4))
    for one, other in zip(results(mixed, x, g), results(anchored, x, g), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)  # weights are float32


def test_anchored_after_a_mixing_is_one_mixing() -> None:
    rows = torch.tensor([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0]])
    nested = layer_with(FixedMixing(rows), reference=Anchored(0.3))
    single = layer_with(FixedMixing(0.3 * rows + torch.tensor([0.0, 0.0, 0.7])))
    x = batch()
    g = torch.randn_like(x)
    for one, other in zip(results(nested, x, g), results(single, x, g), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_the_identity_is_dial_and_keeps_domains_apart() -> None:
    identity, plain = layer_with(FixedMixing(IDENTITY)), layer_with(None)
    x = batch()
    g = torch.randn_like(x)
    for one, other in zip(results(identity, x, g), results(plain, x, g), strict=True):
        torch.testing.assert_close(one, other)
    g[6:] = 0
    _, gradient, *_ = results(identity, x, g)
    assert bool((gradient[6:] == 0).all())
    set_own_weight(mixed := layer_with("autodial"), 0.9)
    _, gradient, *_ = results(mixed, x, g)
    assert bool((gradient[6:] != 0).any())  # the source's loss moves the target's activations


def test_without_mixing_nothing_is_kept() -> None:
    layer = DomainAlignment(3)
    assert layer.mixing is None
    assert [*layer.children()] == []
    assert "mixing" not in " ".join(layer.state_dict())


@pytest.mark.parametrize(("value", "clipped"), [(1.3, 1.0), (0.1, 0.5), (0.8, 0.8)])
def test_the_number_is_clipped_at_every_pass_and_learns_back(value: float, clipped: float) -> None:
    layer = layer_with("autodial")
    mixing = set_own_weight(layer, value)
    x = batch()
    with use_domain(layer, SIZES):
        first = layer(x).pow(3).sum()
        assert mixing.own_weight.item() == pytest.approx(clipped)
        second = layer(x).pow(3).sum()  # two passes, and then both backward passes
    first.backward()
    second.backward()
    assert mixing.own_weight.grad is not None
    assert bool(mixing.own_weight.grad != 0)
    expected = layer_with("autodial")
    set_own_weight(expected, clipped)
    with use_domain(expected, SIZES):
        torch.testing.assert_close(expected(x).pow(3).sum(), first)


def test_joint_and_separate_passes_agree_with_the_pretrained_column_only() -> None:
    joint, separate = (layer_with(FixedMixing(ANCHORED)) for _ in range(2))
    x = batch()
    g = torch.randn_like(x)
    y, dx, *rest = results(joint, x, g)
    parts = zip(SIZES, x.split([6, 3]), g.split([6, 3]), strict=True)
    found = [results(separate, x_part, g_part, domain) for domain, x_part, g_part in parts]
    assert torch.equal(torch.cat([each[0] for each in found]), y)
    assert torch.equal(torch.cat([each[1] for each in found]), dx)
    for index, gradient in enumerate(rest):
        torch.testing.assert_close(found[0][2 + index] + found[1][2 + index], gradient)
    for one, other in zip(joint.buffers(), separate.buffers(), strict=True):
        assert torch.equal(one, other)


def test_a_domain_that_is_not_in_the_batch_has_its_running_statistics() -> None:
    layer = layer_with("autodial")
    set_own_weight(layer, 0.6)
    x = batch()[:6]
    assert layer.location is not None
    assert layer.spread is not None
    layer.location[1], layer.spread[1] = 3.0, 5.0
    with use_domain(layer, "source"):
        y = layer(x)
    values = oracles.channels_first(x.numpy())
    means = np.stack([values.mean(1), np.full(4, 3.0)])
    mean, var = mixture([0.6, 0.4], means, np.stack([values.var(1), np.full(4, 5.0)]))
    location, scale = (oracles.broadcast(v, x.numpy()) for v in (mean, np.sqrt(var + 1e-5)))
    affine = [oracles.broadcast(p.detach().numpy(), x.numpy()) for p in (layer.weight, layer.bias)]  # type: ignore[union-attr]
    np.testing.assert_allclose(y.detach(), affine[0] * (x.numpy() - location) / scale + affine[1])
    # Its own statistics are tracked, not the mixture.
    tracked = layer.statistics("source")
    assert tracked is not None
    np.testing.assert_allclose(tracked.location, 0.1 * values.mean(1))
    assert layer.num_batches_tracked.tolist() == [1, 0]


def test_layers_without_statistics_use_their_own() -> None:
    x, plain = batch(), layer_with(None)
    for mixing in (FixedMixing(ANCHORED), FixedMixing([[0.0, 0.0, 1.0]] * 2)):
        layer = layer_with(mixing)
        layer.prior_location = layer.prior_spread = None
        with use_domain(layer, SIZES), use_domain(plain, SIZES):
            torch.testing.assert_close(layer(x), plain(x))
    norm = nn.BatchNorm2d(4, track_running_stats=False).double().eval()
    layer = convert(norm, mixing="autodial")  # type: ignore[assignment]
    set_own_weight(layer, 0.5)
    with use_domain(layer, "source"):
        torch.testing.assert_close(layer(x), norm(x))


def test_the_sparse_penalty_is_on_what_is_left_of_the_mixed_mean() -> None:
    layer = layer_with("autodial")
    set_own_weight(layer, 0.75)
    x = batch().requires_grad_()
    with use_domain(layer, SIZES):
        layer(x)
        penalty = losses.sparsity(layer)
    parts = [part.detach().numpy() for part in x.split([6, 3])]
    means = [part.mean((0, 2, 3), keepdims=True) for part in parts]
    mixed = [0.75 * means[0] + 0.25 * means[1], 0.75 * means[1] + 0.25 * means[0]]
    terms = [np.abs(part - mean).mean() for part, mean in zip(parts, mixed, strict=True)]
    assert penalty.item() == pytest.approx(np.mean(terms))


def network() -> nn.Sequential:
    """A small network with statistics and an affine that are not the initial ones."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(4, 5, 2), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)
    ).double()
    for _ in range(3):
        model(torch.randn(8, 4, 5, 2, dtype=torch.float64) + 1)
    nn.init.uniform_(model[1].weight, 0.5, 1.5)
    return model


def alignments(model: nn.Module) -> list[DomainAlignment]:
    return [module for module in model.modules() if isinstance(module, DomainAlignment)]


def trained(mixing: object) -> nn.Module:
    model = convert(network(), mixing=mixing, append_after=["4"])  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        with use_domain(model, SIZES):
            model(batch(seed=step)).pow(2).mean().backward()
        optimizer.step()
    for layer in alignments(model):
        if isinstance(layer.mixing, LearnedMixing):
            set_own_weight(layer, 0.7)
    return model.eval()


@pytest.mark.parametrize("mixing", ["autodial", FixedMixing(ANCHORED)])
def test_convert_keeps_the_output(mixing: str | Mixing) -> None:
    model, x = network().eval(), batch()
    expected = model(x)
    convert(model, mixing=mixing)
    (layer,) = alignments(model)
    assert (layer.prior is not None) == isinstance(mixing, FixedMixing)
    assert layer.mixing is not mixing  # a copy, or one of its own
    assert layer.mixing is not None
    assert layer.mixing().dtype == torch.float64
    for domain in SIZES:
        with use_domain(model, domain):
            torch.testing.assert_close(model(x), expected, rtol=1e-6, atol=1e-6)


def test_every_layer_has_its_own_number_unless_a_function_shares_it() -> None:
    names: list[tuple[str, ...]] = []

    def make(domains: tuple[str, ...]) -> Mixing:
        names.append(domains)
        return shared

    shared = LearnedMixing(("a", "b"))
    for mixing, numbers in (("autodial", 2), (shared, 2), (make, 1)):
        model = convert(network(), mixing=mixing, domains=("a", "b"), append_after=["4"])
        assert len([p for p in model.parameters() if p.dim() == 0]) == numbers
    assert names == [("a", "b")] * 2


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("mixing", ["autodial", FixedMixing(ANCHORED)])
def test_folding_takes_the_mixture(mixing: str | Mixing, fuse: bool) -> None:
    model, x = trained(mixing), batch(seed=9)
    for domain in SIZES:
        plain = fold(model, domain, fuse=fuse)
        assert not any(type(m).__module__.startswith("dial") for m in plain.modules())
        with torch.no_grad(), use_domain(model, domain):
            torch.testing.assert_close(plain(x), model(x))
    assert not torch.allclose(fold(model, "source")(x), fold(model, "target")(x))


def test_calibration_stores_a_domains_own_statistics_and_uses_the_others() -> None:
    model, x = trained("autodial"), batch(seed=9)
    first, last = alignments(model)
    before = first.state_dict()["location"][0].clone()
    calibrate(model, x.split(4), domain="target")
    values = oracles.channels_first(model[0](x).detach().numpy())
    own = first.statistics("target")
    assert own is not None
    np.testing.assert_allclose(own.location, values.mean(1))
    np.testing.assert_allclose(own.spread, values.var(1))
    assert torch.equal(first.state_dict()["location"][0], before)
    # The last layer's input has passed through the first one's mixture with the source.
    with torch.no_grad(), use_domain(model, "target"):
        inputs = model[4][0](model[:4](x)).numpy()
    deep = last.statistics("target")
    assert deep is not None
    np.testing.assert_allclose(deep.location, inputs.mean(0))
    np.testing.assert_allclose(deep.spread, inputs.var(0))


def test_copies_and_states_have_the_number() -> None:
    model, x = trained("autodial"), batch(seed=9)
    again = convert(network(), mixing="autodial", append_after=["4"]).eval()
    again.load_state_dict(model.state_dict())
    assert "1.mixing.own_weight" in model.state_dict()
    for other in (copy.deepcopy(model), again):
        with torch.no_grad():
            torch.testing.assert_close(other(x), model(x))
        assert all(layer.mixing.own_weight.item() == 0.7 for layer in alignments(other))  # type: ignore[union-attr]


def test_half_precision_keeps_its_type() -> None:
    layer = DomainAlignment(4, mixing="autodial").bfloat16()
    x = batch().bfloat16().requires_grad_()
    for training in (True, False):
        layer.train(training)
        with use_domain(layer, SIZES):
            assert layer(x).dtype == torch.bfloat16


class TooSmall(Mixing):
    """A matrix that has no column for the pretrained statistics."""

    def forward(self) -> Tensor:
        return torch.eye(2)


def test_wrong_mixings_are_said() -> None:
    with pytest.raises(DialError, match=r"by name \(autodial\).* got 'auto'"):
        DomainAlignment(3, mixing="auto")
    for reference in (Laplace(), "student"):
        with pytest.raises(DialError, match=r"mean and variance, to mix them, got (Lap|Stu)"):
            DomainAlignment(3, reference=reference, mixing="autodial")
    with pytest.raises(DialError, match=r"matrix \(2, 3\).*got \[\[1.0, 0.0\], \[0.0, 1.0\]\]"):
        DomainAlignment(3, mixing=TooSmall())
    for rows in ([[1.5, -0.5, 0.0], [0.0, 1.0, 0.0]], [[0.5, 0.4, 0.0], [0.0, 1.0, 0.0]]):
        with pytest.raises(DialError, match=r"none below 0, each row with the sum 1, got \[\["):
            DomainAlignment(3, mixing=FixedMixing(rows))
    with pytest.raises(DialError, match=r"two or more domains .* got domains=\('target',\)"):
        DomainAlignment(3, domains=("target",), mixing="autodial")
    with pytest.raises(DialError, match=r"wanted a dial.layers.Mixing, got Identity"):
        DomainAlignment(3, mixing=lambda _: nn.Identity())  # type: ignore[arg-type, return-value]
    assert DomainAlignment(3, reference=Normal(eps=1.0), mixing="autodial").mixing is not None
