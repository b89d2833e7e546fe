"""Recalibrate: a new target's statistics in a finished network, and nothing else."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

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
        return Trainee(backbone, extra=_Taken())

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
        self._take(trainee, images, 0.0)
        logits = extract(trainee, images.target, images.domain).logits
        scores = {0.0: -float(losses.information(logits))}
        most = len(logits) / (len(logits) + self.strength)
        for weight in (part * most for part in _PARTS):
            self._take(trainee, images, weight)
            logits = extract(trainee, images.target, images.domain).logits
            scores[weight] = -float(losses.information(logits))
        best = max(scores, key=lambda weight: scores[weight])
        if best != weight:  # the last one is in place
            self._take(trainee, images, best)
        trainee.extra.weight = best  # type: ignore[union-attr]

    def _take(self, trainee: Trainee, images: Images, weight: float) -> None:
        """Mix the target's statistics with the network's own; a weight of 0 leaves these alone."""
        for layer in trainee.network.modules():
            if not isinstance(layer, DomainAlignment):
                continue
            if weight and isinstance(layer.reference, Anchored):
                layer.reference = replace(layer.reference, weight=weight)
            elif layer.prior is not None:
                layer.set_statistics(images.domain, layer.prior)
        if weight:
            calibrate(trainee.network, images.target, domain=images.domain)

    def figures(self, trainee: Trainee) -> dict[str, Any]:
        """Returns the weight of the target's statistics; 0 if the network stays as it is."""
        return {"statistics_weight": trainee.extra.weight}  # type: ignore[union-attr]

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the network with the target's statistics."""
        return fold(trainee.network, images.domain, fuse=False)


class _Taken(nn.Module):
    """The weight that the statistics of the last target have."""

    weight = 0.0


create = Recalibrate
