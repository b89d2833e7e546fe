"""MCC: class confusion against loops, its edge cases, and that it helps on a small problem."""

import math

import numpy as np
import pytest
import torch

from dial import DialError, losses, methods

from .small import Array, accuracy_after_training, cross_entropy, joint_pass, terms


def weights_by_hand(logits: Array, temperature: float) -> list[float]:
    """Each image's `1 + exp(-entropy)`, scaled to sum to the number of images."""
    weights = []
    for row in logits:
        p = predictions_by_hand(row, temperature)
        weights.append(1 + math.exp(sum(value * math.log(value) for value in p if value > 0)))
    return [weight * len(logits) / sum(weights) for weight in weights]


def predictions_by_hand(row: Array, temperature: float) -> list[float]:
    powers = [math.exp((value - max(row)) / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def confusion_by_hand(
    logits: Array, temperature: float, weights: list[float] | None = None
) -> float:
    """As the paper writes it: the correlation of each pair of classes, row by row."""
    weights = weights or weights_by_hand(logits, temperature)
    p = [predictions_by_hand(row, temperature) for row in logits]
    classes = range(logits.shape[1])
    total = 0.0
    for j in classes:
        row = [sum(w * q[j] * q[k] for w, q in zip(weights, p, strict=True)) for k in classes]
        total += sum(value for k, value in enumerate(row) if k != j) / sum(row)
    return total / len(classes)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize(("images", "classes"), [(9, 4), (3, 7), (1, 2)])
def test_class_confusion_equals_loops(images: int, classes: int, temperature: float) -> None:
    logits = torch.randn(images, classes, dtype=torch.float64) * 4
    expected = confusion_by_hand(logits.numpy(), temperature)
    assert float(losses.class_confusion(logits, temperature)) == pytest.approx(expected, rel=1e-9)
    value = losses.class_confusion(logits.float(), temperature)
    assert float(value) == pytest.approx(expected, rel=1e-4)


def test_gradients_equal_finite_differences_with_the_weights_held() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64) * 3
    weights = weights_by_hand(logits.numpy(), 2.5)
    slopes = np.empty((5, 3))
    for i, j in np.ndindex(5, 3):
        step = np.zeros((5, 3))
        step[i, j] = 1e-6
        above, below = (
            confusion_by_hand(logits.numpy() + sign * step, 2.5, weights) for sign in (1, -1)
        )
        slopes[i, j] = (above - below) / 2e-6
    logits.requires_grad_()
    losses.class_confusion(logits).backward()
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), slopes, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 31])
def test_uniform_predictions_confuse_every_class_with_every_other(classes: int) -> None:
    value = float(losses.class_confusion(torch.zeros(6, classes)))
    assert value == pytest.approx((classes - 1) / classes, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sure_predictions_of_all_classes_confuse_none(dtype: torch.dtype) -> None:
    logits = (torch.eye(5).repeat(3, 1) * 2e4 - 1e4).to(dtype).requires_grad_()
    value = losses.class_confusion(logits)
    assert float(value.detach()) == pytest.approx(0, abs=1e-6)
    value.backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize("scale", [20.0, 1e4])
def test_a_class_that_is_never_predicted_counts_as_confused(scale: float) -> None:
    """Its row goes to those classes that are predicted: 1 of 3 classes, however small its share.

    In the paper's formula the row is 0 / 0 once probabilities vanish in float32.
    """
    logits = (torch.eye(3)[[0, 1, 0, 1]] * scale).requires_grad_()
    value = losses.class_confusion(logits)
    if scale < 1e3:  # the loops' probabilities vanish, too
        assert float(value.detach()) == pytest.approx(
            confusion_by_hand(logits.detach().double().numpy(), 2.5), rel=1e-5
        )
    assert float(value.detach()) == pytest.approx(1 / 3, abs=1e-2)
    value.backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_half_precision_is_computed_in_float32() -> None:
    logits = torch.randn(8, 5).half() * 3
    value = losses.class_confusion(logits)
    assert value.dtype == torch.float32
    expected = confusion_by_hand(logits.double().numpy(), 2.5)
    assert float(value) == pytest.approx(expected, rel=1e-4)


def test_the_losses_are_cross_entropy_and_weighted_confusion_of_the_target() -> None:
    values, trainee, sample = terms("mcc", weight=0.7, temperature=1.5)
    source, target, _, _ = joint_pass(trainee, sample)
    expected = cross_entropy(source, sample.labels)
    assert float(values["cross_entropy"]) == pytest.approx(expected, rel=1e-5)
    expected = 0.7 * confusion_by_hand(target, 1.5)
    assert float(values["confusion"]) == pytest.approx(expected, rel=1e-4)


def test_its_defaults_are_the_papers() -> None:
    method = methods.create("mcc")
    assert (method.weight, method.temperature) == (1.0, 2.5)
    with pytest.raises(DialError, match=r"temperature above 0, got 0.0; fix: the paper's is 2\.5"):
        methods.create("mcc", {"temperature": 0.0})


def test_it_adapts_to_a_target_that_is_turned() -> None:
    before = accuracy_after_training("source_only")
    after = accuracy_after_training("mcc")
    assert after > before + 0.15
