"""AdaBN (Li et al. 2016): train on the source, then take BatchNorm statistics of the target."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.errors import DialError
from dial.layers import calibrate, convert, fold, use_domain
from dial.methods.interface import Images, Method, Terms, Trainee, cross_entropy, shares


@dataclass(frozen=True, kw_only=True)
class AdaBN(Method):
    """Adaptive batch normalization, <https://arxiv.org/abs/1603.04779>.

    The network is trained on the source. Then each BatchNorm's mean and variance are replaced by
    those over all target images; the affine parameters are kept.
    """

    statistics: str = "batch"
    """BatchNorm statistics in training on the source: batch or frozen."""

    choices = Method.choices | {"statistics": ("batch", "frozen")}
    needs_target = False
    midway = "before the target's statistics, which come at the end"
    without = "the network as trained on the source, before the target's statistics went in"

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the network with statistics per domain in its BatchNorms."""
        if not any(isinstance(module, _BatchNorm) for module in backbone.network.modules()):
            raise DialError(
                wanted="a network with BatchNorm layers, whose statistics are replaced",
                got=f"{backbone.name}, without any",
                fix="choose another backbone, or the method dial",
            )
        convert(backbone.network, domains=(*backbone.sources, *backbone.targets))
        return Trainee(backbone, frozen_norms=self.statistics == "frozen")

    def terms(self, trainee: Any, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields the cross-entropy of the source."""
        with use_domain(trainee, shares(trainee.backbone.sources, batch.source)):
            yield {"cross_entropy": cross_entropy(trainee(batch.source), batch.labels)}

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module:
        """Returns the network with the statistics of the training, on the first source given."""
        domain = next(iter(getattr(source, "domains", trainee.backbone.sources)))
        return fold(trainee.network, domain, fuse=False)

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Compute the statistics of the target, over all its images."""
        calibrate(trainee.network, images.target, domain=images.domain)

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the network with the target's statistics."""
        return fold(trainee.network, images.domain, fuse=False)


create = AdaBN
