"""Recalibrate: a new target's statistics in a finished network, and nothing else."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial import losses
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.errors import DialError
from dial.layers import DomainAlignment, calibrate, fold
from dial.methods._probe import extract
from dial.methods.interface import Candidate, Images, Method, Terms, Trainee
from dial.references import Anchored

_PARTS = (1 / 16, 1 / 4, 1)  # of the largest weight


@dataclass(frozen=True, kw_only=True)
class Recalibrate(Method):
    """The statistics of new images, mixed with those that the network has.

    Of `n` images the mean and variance at each BatchNorm have at most the weight
    `n / (n + strength)`, and the network's own statistics the rest (Schneider et al. 2020,
    <https://arxiv.org/abs/2006.16971>); the variance is about the mixed mean, as in `Anchored`. Of
    this weight, a quarter of it, a sixteenth and none, the one is taken with which the predictions
    say most about the images: the largest information, which needs no labels. Statistics that a
    network cannot use make it unsure, so that it stays as it is.
    """

    needs_source = False
    trains = False
    without = "the model that the run started from"

    strength: float = 100.0
    """Images that the network's own statistics count for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.strength >= 0:
            raise DialError(
                wanted="a strength of 0 or more images",
                got=repr(self.strength),
                fix="use --strength 100; more for fewer or odd images",
            )

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the network with DA-layers for its BatchNorms."""
        norms = [m for m in backbone.network.modules() if isinstance(m, _BatchNorm)]
        if not norms or any(norm.running_mean is None for norm in norms):
            raise DialError(
                wanted="a network with BatchNorms and their statistics, to mix new ones with",
                got=f"{backbone.name}, whose BatchNorms have none" if norms else "one without any",
                fix="leave --steps 0 out, to train the network on the target",
            )
        backbone.convert(self.reference_for(backbone))
        return Trainee(backbone)

    def reference_for(self, backbone: Backbone) -> str:  # noqa: ARG002
        """Returns the reference; its weight follows the number of images."""
        return "anchored"

    def begin(self, trainee: Trainee, images: Images) -> dict[str, Candidate]:  # noqa: ARG002
        """Leave the classifier as it is."""
        return {}

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields nothing: there is no training."""
        yield from ()

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module:  # noqa: ARG002
        """Returns the network as it came."""
        return fold(trainee.network, trainee.backbone.targets[0], fuse=False)

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Take the statistics of the target with the weight that says most."""
        count = sum(map(len, images.target))
        most = count / (count + self.strength)
        scores = {}
        for weight in (0.0, *(part * most for part in _PARTS)):
            self._take(trainee, images, weight)
            logits = extract(trainee, images.target, images.domain).logits
            scores[weight] = -float(losses.information(logits))
        self._take(trainee, images, max(scores, key=lambda weight: scores[weight]))

    def _take(self, trainee: Trainee, images: Images, weight: float) -> None:
        """Mix the target's statistics with the network's own; a weight of 0 leaves these alone."""
        for layer in _layers(trainee):
            if weight and isinstance(layer.reference, Anchored):
                layer.reference = replace(layer.reference, weight=weight)
            elif layer.prior is not None:
                layer.set_statistics(images.domain, layer.prior)
        if weight:
            calibrate(trainee.network, images.target, domain=images.domain)

    def figures(self, trainee: Trainee) -> dict[str, Any]:
        """Returns the weight of the target's statistics; 0 if the network stays as it is."""
        layer, domain = _layers(trainee)[-1], trainee.backbone.targets[-1]
        own: Any = layer.statistics(domain)
        prior: Any = layer.prior
        kept = all(torch.equal(one, other) for one, other in zip(own, prior, strict=True))
        return {"statistics_weight": 0.0 if kept else layer.reference.weight}  # type: ignore[attr-defined]

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the network with the target's statistics."""
        return fold(trainee.network, images.domain, fuse=False)


def _layers(trainee: Trainee) -> list[DomainAlignment]:
    return [module for module in trainee.network.modules() if isinstance(module, DomainAlignment)]


create = Recalibrate
