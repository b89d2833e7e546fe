"""DIAL: DA-layers that align every domain with one reference, and entropy on the target."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dial import losses
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.layers.calibration import calibrate
from dial.layers.context import use_domain
from dial.layers.folding import fold
from dial.methods._centroids import refit
from dial.methods.interface import (
    Images,
    Method,
    Output,
    Terms,
    Trainee,
    check_choice,
    cross_entropy,
    grown,
    linear_classifier,
)
from dial.references import Reference


@dataclass(frozen=True, kw_only=True)
class Dial(Method):
    """`cross_entropy(source) + entropy * entropy(target) + sparsity * sparsity(network)`.

    The terms of the two domains share no activation, so one joint pass and one pass a domain
    give the same gradient; the second needs less memory.
    """

    reference: str | Reference = "auto"
    """Reference distribution; 'auto' is anchored:0.1 for pretrained networks, normal for others."""
    entropy: float = 0.2
    """Weight of the target's entropy."""
    warmup: float = 0.0
    """Share of the training over which the entropy's weight grows from nothing to its value."""
    sparsity: float = 0.0
    """Weight of the L1 penalty on centred activations."""
    passes: str = "auto"
    """'joint', 'separate', or 'auto': the faster one on the device."""
    centroids: bool = False
    """Whether the target's class centres take the classifier's place when training is over."""

    without = "the same network with the source's statistics in its DA-layers"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("passes", self.passes, ("auto", "joint", "separate"))

    def prepare(self, backbone: Backbone) -> Trainee:
        """DA-layers in place of all BatchNorms, and where the backbone wants them besides."""
        if self.centroids:
            linear_classifier(backbone.network, backbone.classifier)  # to hear of another kind now
        backbone.convert(self.reference_for(backbone))
        return Trainee(backbone)

    def reference_for(self, backbone: Backbone) -> str | Reference:
        """The reference that 'auto' stands for."""
        if self.reference == "auto":
            return "anchored:0.1" if backbone.pretrained else "normal"
        return self.reference

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """All terms of one joint pass, or those of the source and then those of the target."""
        assert batch.target is not None  # noqa: S101 - needs_target
        joint = self.passes == "joint" or (self.passes == "auto" and batch.source.is_cuda)
        if joint:
            sizes = {"source": len(batch.source), "target": len(batch.target)}
            with use_domain(trainee, sizes):
                output = trainee(torch.cat([batch.source, batch.target]))
            source, target = (
                Output(*p) for p in zip(*(o.split([*sizes.values()]) for o in output), strict=True)
            )
            yield (
                self._of_source(source, batch)
                | self._of_target(target, progress)
                | self._penalty(trainee, 1)
            )
            return
        with use_domain(trainee, "source"):
            source = trainee(batch.source)
        yield self._of_source(source, batch) | self._penalty(trainee, 0.5)
        if not (self.entropy or self.sparsity):  # the target has its statistics to give, no more
            with torch.no_grad(), use_domain(trainee, "target"):
                trainee(batch.target)
            return
        with use_domain(trainee, "target"):
            target = trainee(batch.target)
        yield self._of_target(target, progress) | self._penalty(trainee, 0.5)

    def _of_source(self, source: Output, batch: Batch) -> Terms:
        return {"cross_entropy": cross_entropy(source, batch.labels)}

    def _of_target(self, target: Output, progress: float) -> Terms:
        if not self.entropy:
            return {}
        weight = grown(progress, self.warmup) * self.entropy
        return {"entropy": weight * losses.entropy(target.logits)}

    def _penalty(self, trainee: nn.Module, share: float) -> Terms:
        if not self.sparsity:
            return {}
        return {"sparsity": self.sparsity * share * losses.sparsity(trainee)}

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module:
        """With the source's statistics, taken as the target's are when training is over."""
        network = copy.deepcopy(trainee.network)
        calibrate(network, source, domain="source", passes=1)  # a second one changes little
        return fold(network, "source", fuse=False)

    def finish(self, trainee: Trainee, images: Images) -> None:
        """The target's statistics, over all its images."""
        calibrate(trainee.network, images.target, domain="target")

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """With the target's statistics, and its class centres where they are asked for."""
        network = fold(trainee.network, "target", fuse=False)
        if self.centroids:
            refit(network, images.target, classifier=trainee.backbone.classifier)
        return network


METHOD = Dial
