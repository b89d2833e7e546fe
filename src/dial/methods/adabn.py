"""AdaBN (Li et al. 2016): trained on the source, then BatchNorm statistics of the target."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.layers.calibration import calibrate
from dial.layers.context import use_domain
from dial.layers.conversion import convert
from dial.layers.folding import fold
from dial.methods.interface import Images, Method, Terms, Trainee, check_choice, cross_entropy


@dataclass(frozen=True, kw_only=True)
class AdaBN(Method):
    """Needs no training beyond the source's; the affine is kept."""

    statistics: str = "batch"
    """BatchNorm while training on the source: 'batch', or 'frozen' at its statistics."""

    needs_target = False
    without = "the network as trained on the source, before the target's statistics went in"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("statistics", self.statistics, ("batch", "frozen"))

    def prepare(self, backbone: Backbone) -> Trainee:
        """BatchNorms that keep the domains apart; none are added."""
        convert(backbone.network)
        return Trainee(backbone, frozen_norms=self.statistics == "frozen")

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Cross-entropy of the source."""
        with use_domain(trainee, "source"):
            yield {"cross_entropy": cross_entropy(trainee(batch.source), batch.labels)}

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module:  # noqa: ARG002
        """With the statistics that the training on the source left."""
        return fold(trainee.network, "source", fuse=False)

    def finish(self, trainee: Trainee, images: Images) -> None:
        """The target's statistics, over all its images."""
        calibrate(trainee.network, images.target, domain="target")

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:  # noqa: ARG002
        """With the target's statistics."""
        return fold(trainee.network, "target", fuse=False)


METHOD = AdaBN
