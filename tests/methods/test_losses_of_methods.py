"""Each method's losses against NumPy, on sub-batches of unequal sizes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from dial import DomainAlignment, losses, methods
from dial.data.batches import Batch
from dial.methods.adabn_coral import recolour
from dial.references import Anchored
from tests import oracles

from .small import backbone

Array = oracles.Array


def batch(source: int = 9, target: int = 5) -> Batch:
    images = torch.randn(source + target, 3, 8, 8)
    return Batch(images[:source], torch.randint(4, (source,)), images[source:] * 2)


def terms(
    name: str, progress: float = 0.3, **settings: object
) -> tuple[dict[str, Tensor], methods.Trainee, Batch]:
    method = methods.create(name, settings)
    trainee = method.prepare(backbone()).train()
    sample = batch()
    found: dict[str, Tensor] = {}
    for part in method.terms(trainee, sample, progress):
        for key, value in part.items():
            found[key] = found.get(key, torch.zeros(())) + value.detach()
    return found, trainee, sample


def numpy(x: Tensor) -> Array:
    return x.detach().double().numpy()


def softmax(logits: Array) -> Array:
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def cross_entropy(logits: Array, labels: Tensor) -> float:
    p = softmax(logits)
    return float(-np.log(p[np.arange(len(p)), labels.numpy()]).mean())


def entropy(logits: Array) -> float:
    p = softmax(logits)
    return float(-(p * np.log(p)).sum(1).mean())


def mmd(source: Array, target: Array) -> float:
    x = np.concatenate([source, target])
    distance = ((x[:, None] - x[None]) ** 2).sum(2)
    mean = distance.sum() / (len(x) * (len(x) - 1))
    kernel = sum(np.exp(-distance / (mean * factor)) for factor in (0.25, 0.5, 1, 2, 4))
    n = len(source)
    return float(kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean())


def joint_pass(trainee: methods.Trainee, sample: Batch) -> tuple[Array, Array, Array, Array]:
    """Logits and features of both domains, from a network without domains, pass by pass."""
    assert sample.target is not None
    trainee.train()
    output = trainee(torch.cat([sample.source, sample.target]))
    n = len(sample.source)
    return (
        numpy(output.logits[:n]),
        numpy(output.logits[n:]),
        numpy(output.features[:n]),
        numpy(output.features[n:]),
    )


def test_every_method_is_described_and_made_by_name() -> None:
    assert set(methods.names()) == {
        "adabn", "adabn_coral", "dan", "ddc", "dial", "entropy_only", "revgrad", "source_only",
    }  # fmt: skip
    assert all(methods.describe().values())
    with pytest.raises(methods.DialError, match=r"settings of the method ddc .* got entropy"):
        methods.create("ddc", {"entropy": 0.1})
    with pytest.raises(methods.DialError, match="passes to be one of auto, joint, separate"):
        methods.create("dial", {"passes": "both"})


def test_source_only_and_entropy_only() -> None:
    found, trainee, sample = terms("source_only")
    logits = numpy(trainee.train()(sample.source).logits)
    assert float(found["cross_entropy"]) == pytest.approx(
        cross_entropy(logits, sample.labels), rel=1e-5
    )
    found, trainee, sample = terms("entropy_only", entropy=0.7)
    source, target, _, _ = joint_pass(trainee, sample)
    assert float(found["cross_entropy"]) == pytest.approx(
        cross_entropy(source, sample.labels), rel=1e-5
    )
    assert float(found["entropy"]) == pytest.approx(0.7 * entropy(target), rel=1e-5)


def test_ddc_and_dan() -> None:
    found, trainee, sample = terms("ddc")
    _, _, source, target = joint_pass(trainee, sample)
    expected = 0.25 * ((source.mean(0) - target.mean(0)) ** 2).sum()
    assert float(found["discrepancy"]) == pytest.approx(expected, rel=1e-4)
    found, trainee, sample = terms("dan")
    logits_s, logits_t, source, target = joint_pass(trainee, sample)
    expected = mmd(source, target) + mmd(logits_s, logits_t)
    assert float(found["discrepancy"]) == pytest.approx(expected, rel=1e-4)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    # The bandwidth is a constant to the gradient, so only the value is checked against NumPy.
    assert float(losses.mmd(x, x + 1).detach()) == pytest.approx(mmd(numpy(x), numpy(x + 1)))


def test_revgrad_trains_the_discriminator_and_turns_the_features_around() -> None:
    progress = 0.4
    _, trainee, sample = terms("revgrad", progress)
    assert trainee.extra is not None
    assert sample.target is not None
    reversal = 2 / (1 + math.exp(-10 * progress)) - 1
    weights = next(trainee.network.parameters()), next(trainee.extra.parameters())
    trainee.extra.eval()  # no dropout, so that two passes are the same
    method = methods.create("revgrad")
    (again,) = method.terms(trainee, sample, progress)
    turned, learnt = torch.autograd.grad(again["domain"], weights)
    output = trainee(torch.cat([sample.source, sample.target]))
    discriminator = trainee.extra
    guesses = discriminator(output.features).squeeze(1)
    p = torch.sigmoid(guesses)
    plain = -(p[:9].log().mean() + (1 - p[9:]).log().mean()) / 2 * 0.1
    assert float(again["domain"].detach()) == pytest.approx(float(plain.detach()), rel=1e-4)
    straight, same = torch.autograd.grad(plain, weights)
    torch.testing.assert_close(turned, -reversal * straight, atol=1e-7, rtol=1e-3)
    torch.testing.assert_close(learnt, same, atol=1e-7, rtol=1e-3)


@pytest.mark.parametrize("reference", ["normal", "epsilon", "laplace", "anchored"])
@pytest.mark.parametrize(("entropy", "sparsity"), [(0.5, 0.0), (0.5, 0.3), (0.0, 0.3), (0.0, 0.0)])
def test_dial_joint_and_separate_passes_give_the_same_step(
    reference: str, entropy: float, sparsity: float
) -> None:
    gradients, values, statistics = [], [], []
    for passes in ("joint", "separate"):
        torch.manual_seed(1)
        method = methods.create(
            "dial",
            {"reference": reference, "entropy": entropy, "sparsity": sparsity, "passes": passes},
        )
        trainee = method.prepare(backbone()).train()
        found: dict[str, float] = {}
        for part in method.terms(trainee, batch(), 0.0):
            sum(part.values()).backward()
            for key, value in part.items():
                found[key] = found.get(key, 0.0) + float(value.detach())
        values.append(found)
        gradients.append([p.grad for p in trainee.parameters()])
        statistics.append([*trainee.buffers()])
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert ("sparsity" in values[0]) == (sparsity > 0)
    assert ("entropy" in values[0]) == (entropy > 0)
    for one, other in zip(
        [*gradients[0], *statistics[0]], [*gradients[1], *statistics[1]], strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_coral_recolours_the_source() -> None:
    source, target = (
        torch.randn(200, 4) @ torch.randn(4, 4) + 3,
        torch.randn(90, 4) @ torch.randn(4, 4),
    )
    x, y = numpy(source), numpy(target)

    def root(matrix: Array, power: float) -> Array:
        values, vectors = np.linalg.eigh(matrix)
        return np.asarray(vectors @ np.diag(values**power) @ vectors.T)

    cs, ct = np.cov(x.T) + np.eye(4), np.cov(y.T) + np.eye(4)
    expected = (x - x.mean(0)) @ root(cs, -0.5) @ root(ct, 0.5) + y.mean(0)
    np.testing.assert_allclose(recolour(source, target), expected, rtol=1e-6, atol=1e-8)
    difference = np.cov(x.T) - np.cov(y.T)
    found = float(losses.coral(source, target))
    assert found == pytest.approx((difference**2).sum() / (4 * 16), rel=1e-5)


def test_pretrained_networks_keep_their_statistics_unless_told() -> None:
    for statistics, pretrained, moves in [
        ("auto", True, False),
        ("auto", False, True),
        ("batch", True, True),
        ("frozen", False, False),
    ]:
        made = backbone()
        object.__setattr__(made, "pretrained", pretrained)
        method = methods.create("source_only", {"statistics": statistics})
        trainee = method.prepare(made).train()
        before = made.network[1].running_mean.clone()
        list(method.terms(trainee, batch(), 0.0))
        assert (not torch.equal(before, made.network[1].running_mean)) == moves


def test_what_auto_stands_for() -> None:
    dial = methods.create("dial", {})
    assert dial.reference_for(backbone()) == "normal"
    pretrained = replace(backbone(), pretrained=True)
    assert dial.reference_for(pretrained) == "anchored:0.1"
    dial.prepare(pretrained)
    layer = pretrained.network.get_submodule("1")
    assert isinstance(layer, DomainAlignment)
    assert layer.reference == Anchored(0.1)
