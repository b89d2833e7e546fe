"""entropy and sparsity against NumPy."""

import copy
import gc

import numpy as np
import pytest
import torch
from torch import nn

from dial import DialError, DomainAlignment, convert, losses, references, use_domain
from dial.references import Anchored
from tests import oracles

NAMES = ["normal", "epsilon", "laplace", "anchored"]


def test_entropy_equals_numpy() -> None:
    logits = torch.randn(20, 7) * 4
    p = np.exp(logits.double().numpy())
    p /= p.sum(1, keepdims=True)
    expected = -(p * np.log(p)).sum(1).mean()
    assert float(losses.entropy(logits)) == pytest.approx(expected, rel=1e-6)
    dense = logits.t().reshape(1, 7, 20)
    assert float(losses.entropy(dense)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_entropy_is_stable_for_huge_logits(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], dtype=dtype, requires_grad=True)
    value = losses.entropy(logits)
    assert float(value.detach()) == pytest.approx(np.log(3) / 2, rel=1e-6)
    value.backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_entropy_gradcheck() -> None:
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(losses.entropy, (logits,))


def penalty(name: str, x: torch.Tensor, layer: DomainAlignment) -> float:
    prior = (
        None
        if layer.prior is None
        else (layer.prior[0].double().numpy(), layer.prior[1].double().numpy())
    )
    values = x.detach().double().numpy()
    location, _ = oracles.location_and_scale(name, values, prior)
    return float(np.abs(values - oracles.broadcast(location, values)).mean())


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_sparsity_is_the_mean_over_layers_and_domains(name: str, joint: bool) -> None:
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3), nn.BatchNorm1d(3)
    )
    for norm in (model[1], model[4]):
        nn.init.normal_(norm.running_mean)
    convert(model, reference=name)
    source, target = torch.randn(9, 4), torch.randn(5, 4) * 3
    if joint:
        with use_domain(model, {"source": 9, "target": 5}):
            outputs = [model(torch.cat([source, target]))]
    else:
        outputs = []
        for domain, x in (("source", source), ("target", target)):
            with use_domain(model, domain):
                outputs.append(model(x))
    value = losses.sparsity(model)
    expected = []
    for domain, x in (("source", source), ("target", target)):
        with torch.no_grad(), use_domain(copy.deepcopy(model), domain):
            first = model[0](x)
            expected.append(penalty(name, first, model[1]))
            twin = copy.deepcopy(model)
            with use_domain(twin, domain):
                expected.append(penalty(name, twin[:4](x), model[4]))
    assert float(value.detach()) == pytest.approx(np.mean(expected), rel=1e-5)
    value.backward()
    assert model[0].weight.grad is not None
    assert float(model[0].weight.grad.abs().sum()) > 0
    assert len(outputs) == (1 if joint else 2)


@pytest.mark.parametrize("shape", [(8, 6), (8, 7, 6)])
@pytest.mark.parametrize("name", references.describe())
def test_joint_and_separate_passes_have_the_same_sparsity(
    name: str, shape: tuple[int, ...]
) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4))
    convert(model, name, append_after=["0", "2"], insert_before=["2"])
    images = {domain: torch.randn(shape) for domain in ("source", "target")}
    separate = []
    for domain, x in images.items():
        with use_domain(model, domain):
            y = model(x)
        value = losses.sparsity(model)
        separate.append(float(value.detach()))
        (y.sum() + value).backward()
    with use_domain(model, {"source": 8, "target": 8}):
        y = model(torch.cat([*images.values()]))
    assert float(losses.sparsity(model).detach()) == pytest.approx(np.mean(separate), rel=1e-5)


def test_sparsity_gradcheck() -> None:
    for reference in ("normal", "laplace", Anchored(0.3)):
        layer = DomainAlignment(3, reference=reference).double()

        def loss(x: torch.Tensor, layer: DomainAlignment = layer) -> torch.Tensor:
            with use_domain(layer, {"source": 4, "target": 3}):
                y = layer(x)
            return losses.sparsity(layer) + 0 * y.sum()

        x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(loss, (x,))


def test_sparsity_needs_a_training_step_and_keeps_nothing_alive() -> None:
    model = nn.Sequential(nn.Linear(3, 4), DomainAlignment(4))
    with pytest.raises(DialError, match="1 DA-layers, none with activations"):
        losses.sparsity(model)
    with torch.no_grad():
        model(torch.randn(5, 3))
    with pytest.raises(DialError, match="none with activations"):
        losses.sparsity(model)
    model(torch.randn(5, 3)).sum().backward()
    gc.collect()
    with pytest.raises(DialError, match="before backward"):
        losses.sparsity(model)


def test_information_is_the_negative_mutual_information() -> None:
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)).double()
    p = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    mean = p.mean(0)
    wanted = -sum((p[i] * np.log(p[i] / mean)).sum() for i in range(30)) / 30
    assert float(losses.information(logits)) == pytest.approx(wanted)


def test_information_with_the_marginal_of_many_images() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=generator).double().requires_grad_()
    marginal = torch.rand(5, generator=generator).double()
    marginal /= marginal.sum()
    p = logits.detach().numpy()
    p = np.exp(p) / np.exp(p).sum(1, keepdims=True)
    wanted = -(p * np.log(p)).sum(1).mean() + (p.mean(0) * np.log(marginal.numpy())).sum()
    assert losses.information(logits, marginal).item() == pytest.approx(wanted)
    # With the batch's own mean it is the same loss, and its gradient too.
    own = logits.detach().softmax(1).mean(0)
    gradients = []
    for loss in (losses.information(logits, own), losses.information(logits)):
        gradients.append(torch.autograd.grad(loss, logits)[0])
    torch.testing.assert_close(*gradients)
    assert losses.information(logits, torch.eye(5)[0].double()).isfinite()  # four never predicted
