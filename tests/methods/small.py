"""A small network, a batch, a step and a problem to try methods on; and losses in NumPy."""

import numpy as np
import torch
from torch import Tensor, nn

from dial import methods
from dial.backbones import Backbone
from dial.data.batches import Batch
from tests import oracles

Array = oracles.Array


def backbone() -> Backbone:
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )
    return Backbone.of(network, image_size=8, append_after=("5",))


def batch(source: int = 9, target: int = 5) -> Batch:
    """Sub-batches of unequal sizes."""
    images = torch.randn(source + target, 3, 8, 8)
    return Batch(images[:source], torch.randint(4, (source,)), images[source:] * 2)


def terms(
    name: str, progress: float = 0.3, **settings: object
) -> tuple[dict[str, Tensor], methods.Trainee, Batch]:
    """The values of a step's terms, with the trainee and the batch."""
    method = methods.create(name, settings)
    trainee = method.prepare(backbone()).train()
    sample = batch()
    values: dict[str, Tensor] = {}
    for part in method.terms(trainee, sample, progress):
        for key, value in part.items():
            values[key] = values.get(key, torch.zeros(())) + value.detach()
    return values, trainee, sample


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


def numpy(x: Tensor) -> Array:
    return x.detach().double().numpy()


def softmax(logits: Array) -> Array:
    p = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True))


def cross_entropy(logits: Array, labels: Tensor) -> float:
    p = softmax(logits)
    return float(-np.log(p[np.arange(len(p)), labels.numpy()]).mean())


def entropy(logits: Array) -> float:
    p = softmax(logits)
    return float(-(p * np.log(p)).sum(1).mean())


def accuracy_after_training(name: str, *, steps: int = 150, **settings: object) -> float:
    """Accuracy on the target of a small problem: `points`, turned by half the angle of classes."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    method = methods.create(name, settings)
    trainee = method.prepare(Backbone.of(network, image_size=2)).train()
    optimizer = torch.optim.SGD(trainee.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        (source, labels), (target, _) = points(32, turn=0.0), points(32, turn=torch.pi / 4)
        for part in method.terms(trainee, Batch(source, labels, target), step / steps):
            torch.stack([*part.values()]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    images, labels = points(1000, turn=torch.pi / 4)
    return float((network.eval()(images).argmax(1) == labels).float().mean())


def points(count: int, *, turn: float) -> tuple[Tensor, Tensor]:
    """Points about four centers and their labels, in twelve noisy dimensions.

    The centers lie on a circle in two dimensions, turned, and on a smaller one in two others.
    """
    labels = torch.arange(count) % 4
    angles = labels * (torch.pi / 2)
    turned = angles + turn
    circles = [turned.cos(), turned.sin(), 0.5 * angles.cos(), 0.5 * angles.sin()]
    x = torch.randn(count, 12) * 0.25
    x[:, :4] += torch.stack(circles, dim=1)
    return x.view(count, 3, 2, 2), labels
