"""Drift: false alarms, power, and distances against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from dial import DialError
from dial.selection import drift


def group(count: int, *, shift: float = 0.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 40, generator=generator) + shift


def logits(classes: list[int]) -> torch.Tensor:
    return nn.functional.one_hot(torch.tensor(classes), 4).float()


def test_few_false_alarms_and_every_shift_is_found() -> None:
    target = group(300), torch.tensor([75, 75, 75, 75])
    alarms = {0.0: 0, 0.5: 0}
    for seed in range(1, 41):
        for shift in alarms:
            new = group(50, shift=shift, seed=seed)
            classes = np.random.default_rng(seed).integers(0, 4, 50).tolist()
            alarms[shift] += drift.compare(target, (new, logits(classes))).alarms
    assert alarms[0.0] <= 4  # of 40: 1 in 50 is expected
    assert alarms[0.5] == 40


def test_distances_are_those_of_their_definitions() -> None:
    target, new = group(100), group(30, shift=1.0, seed=1)
    counts = torch.tensor([50, 30, 20, 0])
    found = drift.compare((target, counts), (new, logits([0] * 15 + [3] * 15)))
    away = (new.mean(0) - target.mean(0)).numpy() / target.numpy().std(0, ddof=1)
    assert found.statistics.distance == pytest.approx(np.sqrt(np.mean(away**2)), rel=1e-4)
    assert found.balance.distance == pytest.approx((0.0 + 0.3 + 0.2 + 0.5) / 2)
    assert found.balance.alarms
    assert found.is_worth_adapting
    assert found.to_dict()["drift"] is True


def test_another_class_balance_alone_is_no_reason_to_adapt() -> None:
    target = group(200), torch.tensor([50, 50, 50, 50])
    found = drift.compare(target, (group(60, seed=5), logits([0] * 60)))
    assert found.balance.alarms
    assert not found.statistics.alarms
    assert found.alarms
    assert not found.is_worth_adapting


def test_descriptions_do_not_depend_on_the_batches() -> None:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 4))
    images = torch.randn(10, 3, 8, 8)
    whole, parts = (
        [
            torch.cat(each)
            for each in zip(*drift.describe(network, split, classifier="5"), strict=True)
        ]
        for split in ([images], images.split(3))
    )
    torch.testing.assert_close(whole[0], parts[0])
    torch.testing.assert_close(whole[1], network(images))
    assert not network.training


def test_a_network_without_batch_norm_is_described_by_its_features() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    ((described, _),) = drift.describe(network, [torch.randn(5, 3, 2, 2)], classifier="3")
    assert len(described) == 5
    assert described.std(0).min() > 0


def test_one_image_is_too_few() -> None:
    with pytest.raises(DialError, match="2 images or more"):
        drift.compare((group(10), torch.tensor([5, 5, 0, 0])), (group(1), logits([0])))
