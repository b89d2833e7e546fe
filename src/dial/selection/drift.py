"""Whether new images are still what a model was made for, without labels.

Two comparisons with images of the target that the model was adapted to. The first is of statistics:
of each image the mean and the deviation of every channel at every normalization layer, in units of
the layer's own statistics, and of these a few random projections for each layer. The distance is
the root of the mean squared difference of the two groups' means, in deviations between images. The
second is of class balance: the total variation between the shares of the predicted classes.

What chance gives is found by permutation: both groups are thrown together and divided anew many
times. A group of images of the target itself then has a larger distance than all but a hundredth
of the divisions in one of a hundred cases, however many images there are.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import classifier_layer
from dial.errors import DialError
from dial.layers import to_network

DESCRIBED = 300
"""Images of the target that are described."""
_PROJECTIONS = 16  # of each layer
_PERMUTATIONS = 999
_ALARM = 0.01  # the chance of a false alarm of each comparison
_WORTH = 0.5  # deviations between images: what separates cameras, not what separates days
_LEAST = 2  # images


@dataclass(frozen=True)
class Comparison:
    """A distance between new images and the target, and what chance gives."""

    distance: float
    chance: float
    """The distance that as many images stay below in 95 of 100 cases, if they are drawn from both
    groups thrown together."""
    probability: float
    """Of a distance at least as large by chance."""

    @property
    def alarms(self) -> bool:
        """Whether chance alone hardly explains the distance."""
        return self.probability <= _ALARM


@dataclass(frozen=True)
class Drift:
    """How far new images are from those that a model was made for."""

    images: int
    statistics: Comparison
    balance: Comparison
    unreadable: int = 0
    """Files that were left out because they cannot be read."""

    @property
    def alarms(self) -> bool:
        """Whether statistics or class balance differ by more than chance."""
        return self.statistics.alarms or self.balance.alarms

    @property
    def is_worth_adapting(self) -> bool:
        """Whether the images themselves differ so much that adapting anew seems worth it."""
        return self.statistics.alarms and self.statistics.distance >= _WORTH

    def to_dict(self) -> dict[str, Any]:
        """Returns everything, for JSON."""
        verdicts = {"drift": self.alarms, "adapt_anew": self.is_worth_adapting}
        return asdict(self) | verdicts


@torch.no_grad()
def describe(
    network: nn.Module, batches: Iterable[Tensor], *, classifier: str
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields descriptions `(n, F)` and logits `(n, K)` of each batch.

    Args:
        network: a plain network; it is put into eval mode.
        batches: images.
        classifier: the name of the layer whose input is described in a network without BatchNorms.
    """
    network.eval()
    layers: list[Any] = [m for m in network.modules() if isinstance(m, _BatchNorm)]
    layers = layers or [classifier_layer(network, classifier)]
    parts: dict[int, Tensor] = {}

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], *, number: int) -> None:
        parts[number] = _project(layers[number], inputs[0], number)

    with ExitStack() as hooks:
        for number, layer in enumerate(layers):
            hook = partial(keep, number=number)
            hooks.enter_context(layer.register_forward_pre_hook(hook))
        for images in batches:
            logits = network(to_network(images, network)).float().cpu()
            yield torch.cat([parts[number] for number in sorted(parts)], 1), logits


def _project(layer: Any, x: Tensor, number: int) -> Tensor:
    """Returns random projections of each image's channel statistics at a layer, `(n, P)`."""
    x = x.float()
    if isinstance(layer, nn.Linear) and x.dim() > 2:  # noqa: PLR2004 - tokens
        x = x.movedim(-1, 1)
    values = x.flatten(2) if x.dim() > 2 else x[:, :, None]  # noqa: PLR2004
    mean, deviation = values.mean(2), values.std(2, correction=0)
    if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
        variance: Any = layer.running_var
        scale = (variance + layer.eps).sqrt()
        mean, deviation = (mean - layer.running_mean) / scale, deviation / scale
    both = torch.cat([mean, deviation], 1).cpu()
    generator = torch.Generator().manual_seed(number)
    directions = torch.randn(both.shape[1], _PROJECTIONS, generator=generator)
    projected: Tensor = both @ directions / math.sqrt(both.shape[1])
    return projected


def compare(target: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> Drift:
    """Returns the drift of new images from the target's.

    Args:
        target: descriptions `(M, F)` of target images, and the numbers `(K,)` of all target
            images that are predicted as each class.
        new: descriptions `(n, F)` of new images, and logits `(n, K)`.

    Raises:
        DialError: fewer than two new images.
    """
    (described, counts), (descriptions, logits) = target, new
    if len(descriptions) < _LEAST:
        raise DialError(
            wanted=f"{_LEAST} images or more to compare with the target",
            got=str(len(descriptions)),
            fix="name a folder of images; twenty or more tell something",
        )
    deviations = described.double().std(0).clamp_min(1e-9)
    rows = torch.cat([described, descriptions]).double() / deviations
    predicted = torch.cat([torch.arange(len(counts)).repeat_interleave(counts), logits.argmax(1)])
    classes = nn.functional.one_hot(predicted, len(counts)).double()
    return Drift(
        len(descriptions),
        _permute(rows, len(descriptions), lambda shifts: shifts.square().mean(1).sqrt()),
        _permute(classes, len(logits), lambda shifts: shifts.abs().sum(1) / 2),
    )


def _permute(rows: Tensor, count: int, measure: Callable[[Tensor], Tensor]) -> Comparison:
    """Compare the last `count` rows with the others, and random divisions of all of them."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.arange(len(rows)).flip(0)]  # the last ones come first
    orders += [torch.randperm(len(rows), generator=generator) for _ in range(_PERMUTATIONS)]
    sums = torch.stack([rows[order[:count]].sum(0) for order in orders])
    rest = (rows.sum(0) - sums) / (len(rows) - count)
    distance, *_ = distances = measure(sums / count - rest)
    by_chance = distances[1:]
    return Comparison(
        distance=float(distance),
        chance=float(by_chance.quantile(0.95)),
        probability=(int((by_chance >= distance - 1e-12).sum()) + 1) / len(distances),
    )
