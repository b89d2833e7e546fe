"""convert: what survives, what changes, on hand-made and on public networks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial import DialError, DomainAlignment, convert, losses, use_domain
from dial.layers import AlignedLayer, DomainAlignmentAct
from dial.references import REFERENCES, Anchored, Laplace, Normal

NAMES = REFERENCES.names()
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": torchvision.models.resnet18,
    "mobilenet_v2": lambda: torchvision.models.mobilenet_v2(width_mult=0.35),
    "efficientnet_lite0": lambda: timm.create_model("tf_efficientnet_lite0"),
    "regnet": lambda: timm.create_model("regnetx_002"),
}

# Those that are estimated step by step take seconds for each of these networks.
STEPWISE = {"generalized", "logistic", "student"}
LARGE = {"mobilenet_v2", "efficientnet_lite0", "regnet"}
CASES = [
    pytest.param(
        network,
        reference,
        marks=[pytest.mark.slow] if network in LARGE and reference in STEPWISE else [],
    )
    for network in NETWORKS
    for reference in NAMES
]


def lived_in(model: nn.Module, shape: tuple[int, ...] = (8, 3, 32, 32)) -> nn.Module:
    """A network with statistics and affines that are not the initial ones."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.weight is not None:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    with torch.no_grad():
        for _ in range(2):
            model.train()(torch.randn(shape) * 2 + 1)
    return model.eval()


def alignments(model: nn.Module) -> list[DomainAlignment]:
    return [module for module in model.modules() if isinstance(module, DomainAlignment)]


@pytest.mark.parametrize(("name", "reference"), CASES)
def test_output_in_eval_mode_is_the_same_for_every_domain(name: str, reference: str) -> None:
    model = lived_in(NETWORKS[name]())
    x = torch.randn(4, 3, 32, 32)
    norms = sum(isinstance(module, _BatchNorm) for module in model.modules())
    with torch.no_grad():
        expected = model(x)
        converted = convert(model, reference=reference, domains=("a", "b", "c"))
        assert len(alignments(converted)) == norms
        assert not any(isinstance(module, _BatchNorm) for module in converted.modules())
        for domain in ("a", "b", "c"):
            with use_domain(converted, domain):
                torch.testing.assert_close(converted(x), expected, atol=2e-5, rtol=2e-5)


def test_epsilon_of_each_norm_is_kept_and_training_is_the_same_too() -> None:
    model = lived_in(NETWORKS["efficientnet_lite0"]()).train()  # eps is 1e-3 there
    x = torch.randn(8, 3, 32, 32)
    converted = convert(copy.deepcopy(model))
    assert {layer.reference for layer in alignments(converted)} == {Normal(eps=1e-3)}
    assert isinstance(alignments(converted)[0], DomainAlignmentAct)
    torch.testing.assert_close(converted(x), model(x), atol=1e-5, rtol=1e-5)


def test_parameters_modes_types_and_frozen_parts_survive() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=0.3), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
    ).double()
    model[1].eval().requires_grad_(False)
    before = dict(model.named_parameters())
    statistics = model[1].running_var.clone()
    converted = convert(model)
    assert converted is model
    assert dict(converted.named_parameters()).keys() == before.keys()
    assert all(p is before[name] for name, p in converted.named_parameters())
    first, second = alignments(converted)
    assert (first.training, second.training) == (False, True)
    assert first.momentum == 0.3
    assert first.location is not None
    assert first.location.dtype == torch.float64
    assert not any(p.requires_grad for p in first.parameters())
    assert first.spread is not None
    assert all(torch.equal(row, statistics) for row in first.spread)


class Shared(nn.Module):
    """One norm used twice and under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleList([self.norm])

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.second(self.blocks[0](self.first(x))))


def test_norm_used_twice_stays_one_layer() -> None:
    model = convert(lived_in(Shared(), (16, 4)))
    assert len(alignments(model)) == 1
    assert model.norm is model.blocks[0]
    with use_domain(model.train(), "source"):
        model(torch.randn(8, 4))
    assert alignments(model)[0].num_batches_tracked.tolist() == [6, 4]  # four before, two now


@pytest.mark.parametrize("reference", NAMES)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("track", [True, False])
def test_norms_without_affine_or_statistics(affine: bool, track: bool, reference: str) -> None:
    norm = nn.BatchNorm1d(4, affine=affine, track_running_stats=track)
    model = lived_in(nn.Sequential(nn.Linear(4, 4), norm), (16, 4))
    x = torch.randn(16, 4)
    expected = model(x)
    converted = convert(model, reference=reference)
    trainable = [p for p in alignments(converted)[0].parameters() if p.requires_grad]
    assert len(trainable) == (2 if affine else 0)
    if track or reference in ("normal", "anchored"):
        torch.testing.assert_close(converted(x), expected, atol=1e-6, rtol=1e-5)
    else:  # statistics of the batch itself, in the reference's own measure
        assert bool(converted(x).isfinite().all())


def test_other_norms_are_not_touched() -> None:
    others = [nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm1d(4, track_running_stats=True)]
    model = convert(nn.Sequential(nn.BatchNorm1d(4), *others))
    assert [type(layer) for layer in model][1:] == [type(other) for other in others]


def test_every_kind_of_batch_norm() -> None:
    for norm, shape in [
        (nn.BatchNorm1d(4), (6, 4, 5)),
        (nn.BatchNorm3d(4), (6, 4, 2, 3, 2)),
        (nn.SyncBatchNorm(4), (6, 4, 3, 3)),
        (timm.layers.BatchNormAct2d(4), (6, 4, 3, 3)),
    ]:
        norm.eval()
        x = torch.randn(shape)
        converted = convert(norm)
        assert isinstance(converted, DomainAlignment)  # the network may be a norm itself
        reference = nn.BatchNorm1d(4).eval()(x.flatten(2)).view(shape)
        expected = reference.relu() if isinstance(converted, DomainAlignmentAct) else reference
        torch.testing.assert_close(converted(x), expected)


def test_append_after_puts_new_layers_behind_named_ones() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2)).eval()
    convert(model, append_after=["0", "3"], reference="laplace")
    names = [n for n, m in model.named_modules() if isinstance(m, DomainAlignment)]
    assert names == ["0.1", "3.1"]
    assert [layer.num_features for layer in alignments(model)] == [6, 2]
    assert not any(layer.training for layer in alignments(model))
    assert model(torch.randn(2, 3, 3, 3)).shape == (2, 2)
    convert(model, append_after=["3.0"])  # again, deeper


def test_insert_before_aligns_what_a_layer_gets() -> None:
    conv, linear = nn.Conv2d(3, 6, 3), nn.Linear(6, 2)
    model = convert(
        nn.Sequential(conv, nn.ReLU(), nn.Flatten(), linear).double(),
        insert_before=["0", "3"],
        append_after=["3"],
    )
    names = [n for n, m in model.named_modules() if isinstance(m, DomainAlignment)]
    assert names == [layer.name for layer in alignments(model)] == ["0.0", "3.0", "3.2"]
    assert [layer.num_features for layer in alignments(model)] == [3, 6, 2]
    assert [isinstance(model[i], AlignedLayer) for i in range(4)] == [True, False, False, True]
    assert (model[3].before, model[3].layer, model[3].after) == tuple(model[3])
    assert (model[0].layer, model[0].after) == (conv, None)

    x = torch.randn(9, 3, 3, 3, dtype=torch.float64)
    with use_domain(model.train(), {"source": 5, "target": 4}):
        found = model(x)

    def norm(part: Tensor) -> Tensor:
        return F.batch_norm(part, None, None, training=True)

    for part, wanted in ((x[:5], found[:5]), (x[5:], found[5:])):
        hidden = conv(norm(part)).relu().flatten(1)
        torch.testing.assert_close(wanted, norm(linear(norm(hidden))), atol=1e-10, rtol=1e-10)
    first = alignments(model)[0].location
    assert first is not None
    torch.testing.assert_close(first[1], 0.1 * x[5:].mean((0, 2, 3)))
    for name, output in (("source", found[:5]), ("target", found[5:])):
        with use_domain(model, name):  # one domain after the other is the same
            part = x[:5] if name == "source" else x[5:]
            torch.testing.assert_close(model(part), output, atol=1e-10, rtol=1e-10)


class First(nn.Module):
    """The first token, as a ViT's class token: a view with gaps."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("reference", ["normal", "epsilon", "laplace", "anchored"])
def test_new_layers_take_part_in_the_sparsity(reference: str, joint: bool) -> None:
    network = nn.Sequential(nn.Linear(4, 4), First(), nn.Linear(4, 3)).double()
    around = ["0", "2"]
    model = convert(copy.deepcopy(network), reference, insert_before=around, append_after=around)
    x = torch.randn(9, 5, 4, dtype=torch.float64, requires_grad=True)
    if joint:
        with use_domain(model, {"source": 5, "target": 4}):
            outputs = [model(x)]
    else:
        outputs = []
        for domain, part in (("source", x[:5]), ("target", x[5:])):
            with use_domain(model, domain):
                outputs.append(model(part))
    first, second = model[0], model[2]
    tokens = first.before.centered()[0]
    location = first.before.reference.estimate(x[:5].movedim(-1, 1)).location
    torch.testing.assert_close(tokens, x[:5].movedim(-1, 1) - location[:, None])
    for layer in (first.before, first.after, second.before, second.after):
        assert [len(part) for part in layer.centered()] == [5, 4]
    losses.sparsity(model).backward(retain_graph=True)
    assert model[0].layer.weight.grad.abs().sum() > 0
    torch.stack([output.square().sum() for output in outputs]).sum().backward()
    assert second.before.centered() == second.after.centered() == []


def test_new_layers_are_the_identity_before_the_first_step() -> None:
    model = nn.Sequential(nn.Linear(6, 2)).eval()
    x = torch.randn(4, 6)
    expected = model(x)
    convert(model, insert_before=["0"], append_after=["0"])
    torch.testing.assert_close(model(x), expected, atol=1e-4, rtol=1e-4)


def test_references_as_objects_are_used_as_they_are() -> None:
    for reference in (Laplace(), Anchored(0.5), Normal(eps=1.0)):
        model = convert(nn.Sequential(nn.BatchNorm1d(3, eps=1e-3)), reference=reference)
        assert alignments(model)[0].reference == reference


def test_a_reference_with_a_number_behind_its_name_keeps_the_norms_eps() -> None:
    model = convert(nn.Sequential(nn.BatchNorm1d(3, eps=1e-3)), reference="anchored:0.5")
    assert alignments(model)[0].reference == Anchored(0.5, eps=1e-3)
    with pytest.raises(DialError, match=r"anchored:W .* got 'anchored:half'"):
        convert(nn.Sequential(nn.BatchNorm1d(3)), reference="anchored:half")
    for wrong in ("anchored:", "normal:0.5"):
        with pytest.raises(DialError, match=f"references, anchored, .* got '{wrong}'; fix: write"):
            convert(nn.Sequential(nn.BatchNorm1d(3)), reference=wrong)
    with pytest.raises(DialError, match=r"weight of the data in \(0, 1\].* got 2.0"):
        convert(nn.Sequential(nn.BatchNorm1d(3)), reference="anchored:2")


@pytest.mark.parametrize("reference", ["normal", "laplace", "anchored"])
def test_an_affine_per_domain_starts_from_the_norms(reference: str) -> None:
    model = lived_in(NETWORKS["mobilenet_v2"]())
    model.features[0][1].requires_grad_(False)
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
    convert(model, reference, append_after=["classifier.1"], affine="per-domain")
    for layer in alignments(model):
        assert layer.weight is not None
        assert layer.weight.shape == (2, layer.num_features)
        assert torch.equal(layer.weight[0], layer.weight[1])
    assert not any(p.requires_grad for p in alignments(model)[0].parameters())
    assert all(p.requires_grad for p in alignments(model)[1].parameters())
    model.classifier[1] = model.classifier[1][0]  # without the new layer's own statistics
    for domain in ("source", "target"):
        with torch.no_grad(), use_domain(model, domain):
            torch.testing.assert_close(model(x), expected, atol=2e-5, rtol=2e-5)
    with pytest.raises(DialError, match=r"affine to be shared .* got 'each'"):
        convert(nn.Sequential(nn.BatchNorm1d(3)), affine="each")


class Odd(nn.BatchNorm1d):
    """A norm that does something else."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def test_what_cannot_be_converted_is_said() -> None:
    with pytest.raises(DialError, match="with BatchNorm layers, got a ConvNeXt without any"):
        convert(timm.create_model("convnext_atto"))
    with pytest.raises(DialError, match="converted before"):
        convert(convert(nn.Sequential(nn.BatchNorm1d(3))))
    with pytest.raises(DialError, match=r"got 'fcc', which ResNet does not have; fix: .*fc"):
        convert(torchvision.models.resnet18(), append_after=["fcc"])
    with pytest.raises(DialError, match=r"fix: append_after=\['fc'\]"):
        convert(torchvision.models.resnet18(), append_after="fc")
    for field in ("append_after", "insert_before"):
        arguments: dict[str, Any] = {field: ["0"]}
        wanted = rf"linear or convolutional layers in {field}, got '0', a ReLU"
        with pytest.raises(DialError, match=wanted):
            convert(nn.Sequential(nn.ReLU()), **arguments)
    with pytest.raises(DialError, match=r"in insert_before, got 'fcc', which ResNet does not"):
        convert(torchvision.models.resnet18(), insert_before=["fcc"])
    with pytest.raises(DialError, match=r"fix: insert_before=\['fc'\]"):
        convert(torchvision.models.resnet18(), insert_before="fc")
    with pytest.raises(DialError, match="got '0', a Odd with a forward pass of its own"):
        convert(nn.Sequential(Odd(3)))
    with pytest.raises(DialError, match="run one batch through the network"):
        convert(nn.Sequential(nn.LazyBatchNorm1d()))
