"""Recalibrate: a new target's statistics in a finished network, and nothing else."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.errors import DialError
from dial.layers import DomainAlignment, calibrate, fold
from dial.methods.interface import Candidate, Images, Method, Terms, Trainee


@dataclass(frozen=True, kw_only=True)
class Recalibrate(Method):
    """The statistics of new images, mixed with those that the network has.

    Of `n` images the mean and variance at each BatchNorm have the weight `n / (n + strength)`, and
    the network's own statistics the rest (Schneider et al. 2020,
    <https://arxiv.org/abs/2006.16971>); the variance is about the mixed mean, as in `Anchored`. So
    a few images do no harm.
    """

    needs_source = False
    trains = False
    without = "the model that the run started from"

    strength: float = 200.0
    """Images that the network's own statistics count for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.strength >= 0:
            raise DialError(
                wanted="a strength of 0 or more images",
                got=repr(self.strength),
                fix="use --strength 200; more for fewer or odd images",
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
        """Compute the statistics of the target, over all its images."""
        count = sum(map(len, images.target))
        weight = count / (count + self.strength)
        for layer in trainee.network.modules():
            if isinstance(layer, DomainAlignment):
                reference: Any = layer.reference
                layer.reference = replace(reference, weight=weight)
        calibrate(trainee.network, images.target, domain=images.domain)

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the network with the target's statistics."""
        return fold(trainee.network, images.domain, fuse=False)


create = Recalibrate
