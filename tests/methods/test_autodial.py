"""AutoDIAL: what is minimized, both domains' statistics in the end, the numbers that it learned."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import dial
from dial import DialError, DomainAlignment, losses, methods
from dial.layers import LearnedMixing
from tests.conftest import SETTINGS, check_that_it_resumes

from .small import backbone, batch


def learned(network: torch.nn.Module) -> dict[str, LearnedMixing]:
    layers = {n: m for n, m in network.named_modules() if isinstance(m, DomainAlignment)}
    return {n: m.mixing for n, m in layers.items() if isinstance(m.mixing, LearnedMixing)}


def normalized(parts: list[Tensor], a: Tensor, layer: DomainAlignment) -> list[Tensor]:
    """Source and target by the paper's equations."""
    shape = (1, -1, *[1] * (parts[0].dim() - 2))
    dims = [0, *range(2, parts[0].dim())]
    moments = [(x.mean(dims), x.var(dims, correction=0)) for x in parts]
    outputs = []
    for x, (mean, var), (other_mean, other_var) in zip(parts, moments, moments[::-1], strict=True):
        mixed = a * mean + (1 - a) * other_mean
        square = a * var + (1 - a) * other_var + a * (1 - a) * (mean - other_mean) ** 2 + 1e-5
        assert layer.weight is not None
        assert layer.bias is not None
        y = (x - mixed.view(shape)) / square.sqrt().view(shape)
        outputs.append(y * layer.weight.view(shape) + layer.bias.view(shape))
    return outputs


def test_the_loss_and_its_gradients_are_the_papers() -> None:
    method, sample = methods.create("autodial"), batch()
    trainee = method.prepare(backbone()).train()
    network, mixings = trainee.network, learned(trainee.network)
    assert list(mixings) == ["1", "5.1"]
    for mixing in mixings.values():
        mixing.own_weight.data.fill_(0.8)
    (terms,) = method.terms(trainee, sample, 0.0)
    found = torch.autograd.grad(torch.stack([*terms.values()]).sum(), [*trainee.parameters()])
    assert sample.target is not None
    parts = [network[0](sample.source), network[0](sample.target)]
    parts = normalized(parts, mixings["1"].own_weight, network[1])
    parts = [network[5][0](network[2:5](part)) for part in parts]
    source, target = normalized(parts, mixings["5.1"].own_weight, network[5][1])
    expected = {
        "cross_entropy": cross_entropy(source, sample.labels),
        "entropy": 0.1 * losses.entropy(target),
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)
    wanted = torch.autograd.grad(torch.stack([*expected.values()]).sum(), [*trainee.parameters()])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


@torch.no_grad()
def test_the_predictor_has_the_statistics_of_both_domains() -> None:
    method, sample = methods.create("autodial"), batch(12, 10)
    trainee = method.prepare(backbone())
    mixing = learned(trainee.network)["1"]
    mixing.own_weight.fill_(0.6)
    assert sample.target is not None
    images = methods.Images(sample.source.split(4), sample.labels, sample.target.split(5))
    method.finish(trainee, images)
    values = [trainee.network[0](x).double().numpy() for x in (sample.target, sample.source)]
    means = [x.mean((0, 2, 3)) for x in values]
    second = [(x**2).mean((0, 2, 3)) for x in values]
    mean = 0.6 * means[0] + 0.4 * means[1]
    var = 0.6 * second[0] + 0.4 * second[1] - mean**2
    norm = method.predictor(trainee, images)[1]  # type: ignore[index]
    np.testing.assert_allclose(norm.running_mean, mean, atol=1e-5)
    np.testing.assert_allclose(norm.running_var, var, atol=1e-5)


def test_only_joint_passes_and_moments() -> None:
    with pytest.raises(DialError, match="passes to be one of joint, got 'separate'"):
        methods.create("autodial", {"passes": "separate"})
    with pytest.raises(DialError, match="mean and variance, to mix them, got Laplace"):
        methods.create("autodial", {"reference": "laplace"}).prepare(backbone())


@pytest.mark.parametrize(
    "settings",
    [
        {"reference": "epsilon", "sparsity": 0.1},
        {"reference": "anchored", "affine": "per-domain", "entropy": 0.0},
        {"start": "probe", "head": True, "pseudo_labels": 0.3, "refits": 2},
    ],
)
def test_settings_keep_the_contract(settings: dict[str, Any]) -> None:
    methods.check_method(methods.create("autodial", settings))


def test_the_number_has_no_weight_decay() -> None:
    trainee = methods.create("autodial").prepare(backbone())
    groups = trainee.backbone.parameter_groups(0.1, weight_decay=0.5)
    decays = {p: group["weight_decay"] for group in groups for p in group["params"]}
    numbers = [mixing.own_weight for mixing in learned(trainee.network).values()]
    assert [decays[number] for number in numbers] == [0.0, 0.0]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    own = {"method": "autodial", "cache_dir": str(tmp_path / "cache"), "lr": 0.05}
    return SETTINGS | own | {"out": tmp_path / "run"}


def test_a_run_says_what_it_learned_also_after_a_stop(
    folders: tuple[Path, Path],
    settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    whole = dial.adapt(*folders, **settings)
    mixing = whole.result["mixing"]
    assert mixing == json.loads((tmp_path / "run" / "result.json").read_text())["mixing"]
    assert len(mixing) > 3
    assert all(0.5 <= a <= 1 for a in mixing.values())
    assert min(mixing.values()) < 1
    again = check_that_it_resumes(whole, folders, settings)
    assert again.result["mixing"] == mixing
