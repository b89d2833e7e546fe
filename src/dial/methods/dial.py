"""DIAL: DA-layers that align every domain with one reference, and entropy on the target."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dial import losses
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.layers import calibrate, fold, use_domain
from dial.methods._centroids import set_centroid_classifier
from dial.methods.interface import (
    Images,
    Method,
    Output,
    Terms,
    Trainee,
    both,
    cross_entropy,
    linear_classifier,
    target_of,
    warmup_factor,
)
from dial.references import Reference


@dataclass(frozen=True, kw_only=True)
class Dial(Method):
    """Domain alignment layers (Carlucci et al. 2017), <https://arxiv.org/abs/1702.06332>.

    `cross_entropy(source) + entropy * entropy(target) + sparsity * sparsity(network)`, on a
    network whose normalization layers are DA-layers. The terms of the two domains share no
    activation, so one joint pass and one pass per domain give the same gradient.
    """

    reference: str | Reference = "auto"
    """Reference distribution; auto is anchored:0.1 for pretrained networks, normal for others."""
    entropy: float = 0.2
    """Weight of the target's entropy."""
    warmup: float = 0.0
    """Fraction of the training over which the entropy's weight grows linearly from 0."""
    sparsity: float = 0.0
    """Weight of the L1 penalty on centered activations."""
    passes: str = "auto"
    """Passes per step: joint, separate (less memory) or auto (the faster one on the device)."""
    centroids: bool = False
    """Replace the classifier by the target's class centroids after training."""

    choices = Method.choices | {"passes": ("auto", "joint", "separate")}
    without = "the same network with the source's statistics in its DA-layers"

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the network with DA-layers for its BatchNorms and after `append_after`."""
        if self.centroids:
            linear_classifier(backbone.network, backbone.classifier)  # fail before training
        backbone.convert(self.reference_for(backbone))
        return Trainee(backbone)

    def reference_for(self, backbone: Backbone) -> str | Reference:
        """Returns the reference, with auto resolved."""
        if self.reference == "auto":
            return "anchored:0.1" if backbone.pretrained else "normal"
        return self.reference

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields all terms of a joint pass, or the source's terms and then the target's."""
        images = target_of(batch)
        if self.passes == "joint" or (self.passes == "auto" and batch.source.is_cuda):
            with use_domain(trainee, {"source": len(batch.source), "target": len(images)}):
                source, target = both(trainee, batch)
            yield (
                {"cross_entropy": cross_entropy(source, batch.labels)}
                | self._entropy(target, progress)
                | self._sparsity(trainee, 1)
            )
            return
        with use_domain(trainee, "source"):
            source = trainee(batch.source)
        yield {"cross_entropy": cross_entropy(source, batch.labels)} | self._sparsity(trainee, 0.5)
        has_loss = bool(self.entropy or self.sparsity)  # else the pass only updates statistics
        with use_domain(trainee, "target"), torch.set_grad_enabled(has_loss):
            target = trainee(images)
        if has_loss:
            yield self._entropy(target, progress) | self._sparsity(trainee, 0.5)

    def _entropy(self, target: Output, progress: float) -> Terms:
        if not self.entropy:
            return {}
        weight = warmup_factor(progress, self.warmup) * self.entropy
        return {"entropy": weight * losses.entropy(target.logits)}

    def _sparsity(self, trainee: nn.Module, share: float) -> Terms:
        """`share` is the fraction of the step's domains that the last pass had."""
        if not self.sparsity:
            return {}
        return {"sparsity": self.sparsity * share * losses.sparsity(trainee)}

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module:
        """Returns the network with the source's statistics, calibrated like the target's."""
        network = copy.deepcopy(trainee.network)
        calibrate(network, source, domain="source", passes=1)  # a second one changes little
        return fold(network, "source", fuse=False)

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Compute the statistics of the target, over all its images."""
        calibrate(trainee.network, images.target, domain="target")

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the network with the target's statistics and, if wanted, its centroids."""
        network = fold(trainee.network, "target", fuse=False)
        if self.centroids:
            set_centroid_classifier(network, images.target, classifier=trainee.backbone.classifier)
        return network


create = Dial
