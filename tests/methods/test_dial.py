"""DIAL: joint and separate passes, and the reference that `auto` stands for."""

from dataclasses import replace

import pytest
import torch

from dial import DialError, DomainAlignment, methods
from dial.references import Anchored

from .small import backbone, batch


@pytest.mark.parametrize("reference", ["normal", "epsilon", "laplace", "anchored"])
@pytest.mark.parametrize(("entropy", "sparsity"), [(0.5, 0.0), (0.5, 0.3), (0.0, 0.3), (0.0, 0.0)])
def test_joint_and_separate_passes_give_the_same_step(
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
        sums: dict[str, float] = {}
        for part in method.terms(trainee, batch(), 0.0):
            sum(part.values()).backward()
            for key, value in part.items():
                sums[key] = sums.get(key, 0.0) + float(value.detach())
        values.append(sums)
        gradients.append([p.grad for p in trainee.parameters()])
        statistics.append([*trainee.buffers()])
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert ("sparsity" in values[0]) == (sparsity > 0)
    assert ("entropy" in values[0]) == (entropy > 0)
    for one, other in zip(
        [*gradients[0], *statistics[0]], [*gradients[1], *statistics[1]], strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_passes_are_one_of_three() -> None:
    with pytest.raises(DialError, match="passes to be one of auto, joint, separate"):
        methods.create("dial", {"passes": "both"})


def test_what_auto_stands_for() -> None:
    dial = methods.create("dial", {})
    assert dial.reference_for(backbone()) == "normal"
    pretrained = replace(backbone(), pretrained=True)
    assert dial.reference_for(pretrained) == "anchored:0.1"
    dial.prepare(pretrained)
    layer = pretrained.network.get_submodule("1")
    assert isinstance(layer, DomainAlignment)
    assert layer.reference == Anchored(0.1)
