"""DIAL: DA-layers that align every domain with one reference, and entropy on the target."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dial import losses
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.layers import calibrate, fold, use_domain
from dial.methods._centroids import set_centroid_classifier
from dial.methods._head import fit_to_network, make_candidate
from dial.methods._probe import start_from_features
from dial.methods._pseudo_labels import PseudoLabels
from dial.methods.interface import (
    Candidate,
    Images,
    Method,
    Terms,
    Trainee,
    add_terms,
    both,
    cross_entropy,
    linear_classifier,
    shares,
    split_places,
    target_of,
    warmup_factor,
)
from dial.references import Reference

_CRITERIA = {
    "entropy": losses.entropy,
    "information": losses.information,
    "confusion": losses.class_confusion,
}


@dataclass(frozen=True, kw_only=True)
class Dial(Method):
    """Domain alignment layers (Carlucci et al. 2017), <https://arxiv.org/abs/1702.06332>.

    `cross_entropy(source) + entropy * entropy(target) + sparsity * sparsity(network)`, on a
    network whose normalization layers are DA-layers. Labelled target images, where there are any,
    add their cross-entropy. The terms of the two domains share no
    activation, so one joint pass and one pass per domain give the same gradient.
    """

    reference: str | Reference = "auto"
    """Reference distribution; auto is anchored:0.1 for pretrained networks, normal for others."""
    entropy: float = 0.2
    """Weight of the target's entropy."""
    warmup: float = 0.0
    """Fraction of the training over which the entropy's weight grows linearly from 0."""
    delay: float = 0.0
    """Fraction of the training before the entropy's weight begins to grow."""
    sparsity: float = 0.0
    """Weight of the L1 penalty on centered activations."""
    passes: str = "auto"
    """Passes per step: joint, separate (less memory) or auto (the faster one on the device)."""
    centroids: bool = False
    """Replace the classifier by the target's class centroids after training."""
    criterion: str = "entropy"
    """What `entropy` weighs: entropy, information (entropy minus that of the mean prediction) or
    confusion (class confusion)."""
    pseudo_labels: float = 0.0
    """Weight of the cross-entropy on the target's pseudo-labels, those of the head."""
    refits: int = 0
    """How often pseudo-labels are made, evenly over the training, but not at its beginning."""
    affine: str = "shared"
    """Scale and shift after the alignment: shared by the domains, or per-domain (DSBN)."""
    head: bool = False
    """Fit a head before training and after it, and choose among the predictors without labels."""

    choices = Method.choices | {
        "passes": ("auto", "joint", "separate"),
        "criterion": tuple(_CRITERIA),
        "affine": ("shared", "per-domain"),
    }
    takes_labelled = True
    mixing: ClassVar[str | None] = None
    """The mixing of the DA-layers' statistics, by name."""
    without = "the same network with the source's statistics in its DA-layers"

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the network with DA-layers for its BatchNorms and where the backbone says."""
        if self.centroids or self.head:
            linear_classifier(backbone.network, backbone.classifier)  # fail before training
        backbone.convert(self.reference_for(backbone), affine=self.affine, mixing=self.mixing)
        fold(backbone.network, backbone.targets[0], fuse=False)  # what cannot be folded fails here
        return Trainee(backbone, extra=PseudoLabels() if self.pseudo_labels else None)

    @property
    def refreshes(self) -> tuple[float, ...]:  # type: ignore[override]
        """The parts of the training at which pseudo-labels are renewed."""
        count = self.refits if self.pseudo_labels else 0
        return tuple(number / (count + 1) for number in range(1, count + 1))

    def begin(self, trainee: Trainee, images: Images) -> dict[str, Candidate]:
        """Initialize the classifier; returns the head on a pretrained network as it is."""
        if not (self.head and trainee.backbone.pretrained):
            return super().begin(trainee, images)
        fitted = fit_to_network(trainee, images, trained=False)
        first = {name: make_candidate("frozen", trainee, each) for name, each in fitted.items()}
        if self.start == "probe":
            features = {name: each.target.features for name, each in fitted.items()}
            features |= fitted[images.domain].sources
            start_from_features(trainee, features, images.source_labels)
        return first

    def refresh(self, trainee: Trainee, images: Images, first: Mapping[str, Candidate]) -> None:
        """Fit the head to the features as they are now, and renew the pseudo-labels."""
        if isinstance(trainee.extra, PseudoLabels):
            fitted = fit_to_network(trainee, images, trained=True, first=first)
            labels = {n: (each.head.labels, each.head.confidence) for n, each in fitted.items()}
            trainee.extra.renew(labels, images.starts)

    def reference_for(self, backbone: Backbone) -> str | Reference:
        """Returns the reference, with auto resolved."""
        if self.reference == "auto":
            return "anchored:0.1" if backbone.pretrained else "normal"
        return self.reference

    def terms(self, trainee: Any, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields all terms of a joint pass, or the sources' terms and then the targets'.

        The loss is the mean over sources and the mean over targets.
        """
        backbone, images = trainee.backbone, target_of(batch)
        sources, targets = shares(backbone.sources, batch.source), shares(backbone.targets, images)
        places = split_places(batch, targets)
        if batch.labelled is not None:  # they are of the only target
            images = torch.cat([images, batch.labelled])
            targets, batch = dict.fromkeys(targets, len(images)), batch._replace(target=images)
        if self.passes == "joint" or (self.passes == "auto" and batch.source.is_cuda):
            with use_domain(trainee, sources | targets):
                source, target = both(trainee, batch)
            terms = {"cross_entropy": cross_entropy(source, batch.labels)}
            for logits, rows in zip(target.logits.split([*targets.values()]), places, strict=True):
                more = self._target(trainee, logits, rows, batch.known, progress)
                terms = add_terms(terms, more)
            yield terms | self._sparsity(trainee, 1)
            return
        share = 1 / (len(sources) + len(targets))
        parts = (part.split([*sources.values()]) for part in (batch.source, batch.labels))
        for domain, of_source, labels in zip(sources, *parts, strict=True):
            with use_domain(trainee, domain):
                source = trainee(of_source)
            loss = cross_entropy(source, labels) / len(sources)
            yield {"cross_entropy": loss} | self._sparsity(trainee, share)
        # Without a loss the pass only updates statistics.
        has_loss = bool(self.entropy or self.sparsity or self._has_labels(trainee))
        has_loss = has_loss or batch.known is not None
        of_targets = images.split([*targets.values()])
        for domain, of_target, rows in zip(targets, of_targets, places, strict=True):
            with use_domain(trainee, domain), torch.set_grad_enabled(has_loss):
                target = trainee(of_target)
            if has_loss:
                terms = self._target(trainee, target.logits, rows, batch.known, progress)
                yield terms | self._sparsity(trainee, share)

    def _target(
        self,
        trainee: Any,
        logits: Tensor,
        places: Tensor | None,
        known: Tensor | None,
        progress: float,
    ) -> Terms:
        """Returns the terms of one target, for the mean over targets.

        The last logits are those of images with `known` labels, if there are any.
        """
        terms: Terms = {}
        if known is not None:
            logits, labelled = logits.split([len(logits) - len(known), len(known)])
            terms["labelled"] = nn.functional.cross_entropy(labelled.float(), known)
        share = 1 / len(trainee.backbone.targets)
        if self.entropy:
            weight = warmup_factor(progress, self.warmup, self.delay) * self.entropy * share
            terms[self.criterion] = weight * _CRITERIA[self.criterion](logits)
        if self._has_labels(trainee):
            loss = trainee.extra.cross_entropy(logits, places)
            terms["pseudo_labels"] = self.pseudo_labels * share * loss
        return terms

    def _has_labels(self, trainee: Any) -> bool:
        """Whether there are pseudo-labels: there are none before the first refit."""
        return bool(self.pseudo_labels) and len(trainee.extra.labels) > 0

    def _sparsity(self, trainee: nn.Module, share: float) -> Terms:
        """`share` is the fraction of the step's domains that the last pass had."""
        if not self.sparsity:
            return {}
        return {"sparsity": self.sparsity * share * losses.sparsity(trainee)}

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module:
        """Returns the network with the source's statistics, calibrated like the target's."""
        network = copy.deepcopy(trainee.network)
        # In the place of the first source that is given, the statistics of them all.
        domain = next(iter(getattr(source, "domains", trainee.backbone.sources)))
        calibrate(network, source, domain=domain, passes=1)  # a second one changes little
        return fold(network, domain, fuse=False)

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Compute the statistics of the target, over all its images."""
        calibrate(trainee.network, images.target, domain=images.domain)

    def candidates(
        self, trainee: Trainee, images: Images, first: Candidate | None
    ) -> list[Candidate]:
        """Returns the network with its own classifier, and with a head fitted to its features."""
        if not self.head:
            return []
        before = {} if first is None else {images.domain: first}
        fitted = fit_to_network(trainee, images, trained=True, first=before)[images.domain]
        return [
            make_candidate("classifier", trainee, fitted, own_classifier=True),
            make_candidate("head", trainee, fitted),
        ]

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the network with the target's statistics and, if wanted, its centroids."""
        network = fold(trainee.network, images.domain, fuse=False)
        if self.centroids:
            set_centroid_classifier(network, images.target, classifier=trainee.backbone.classifier)
        return network


create = Dial
