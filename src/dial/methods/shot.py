"""SHOT: source training, then the target alone with the classifier kept as it is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize, one_hot

from dial import losses
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods._probe import extract
from dial.methods._pseudo_labels import PseudoLabels
from dial.methods.interface import (
    Candidate,
    Images,
    PlainMethod,
    Terms,
    Trainee,
    linear_classifier,
    target_of,
)


@dataclass(frozen=True, kw_only=True)
class Shot(PlainMethod):
    """Source hypothesis transfer (Liang et al. 2020), <https://arxiv.org/abs/2002.08546>.

    First the cross-entropy of the source with smoothed labels. Then the source is not used any
    more and the classifier is fixed: `information(target) + weight * cross_entropy(target)` on
    pseudo-labels, those of the nearest centroid, which are renewed now and then.
    """

    weight: float = 0.3
    """Weight of the cross-entropy on pseudo-labels."""
    source_part: float = 0.3
    """Part of the training that is on the source."""
    smoothing: float = 0.1
    """Label smoothing on the source."""
    refits: int = 5
    """How often pseudo-labels are made."""

    @property
    def refreshes(self) -> tuple[float, ...]:  # type: ignore[override]
        """The parts of the training at which pseudo-labels are made."""
        rest = 1 - self.source_part
        return tuple(self.source_part + rest * n / self.refits for n in range(self.refits))

    def extra_modules(self, backbone: Backbone) -> nn.Module:
        """Returns an empty set of pseudo-labels; refuses a classifier that is not linear."""
        linear_classifier(backbone.network, backbone.classifier)
        return PseudoLabels()

    def refresh(self, trainee: Trainee, images: Images, first: Mapping[str, Candidate]) -> None:  # noqa: ARG002
        """Label each target by its centroids."""
        labels = {}
        for domain, batches in images.targets.items():
            output = extract(trainee, batches, domain)
            found = centroid_labels(output.features, output.logits)
            labels[domain] = found, torch.ones(len(found))
        trainee.extra.renew(labels, images.starts)  # type: ignore[operator, union-attr]

    def terms(self, trainee: Any, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields the source's loss in the first part of the training, then the target's."""
        pseudo: PseudoLabels = trainee.extra
        if not len(pseudo.labels):  # the first refresh ends the source's part
            logits = trainee(batch.source).logits.float()
            loss = cross_entropy(logits, batch.labels, label_smoothing=self.smoothing)
            yield {"cross_entropy": loss}
            return
        features = trainee(target_of(batch)).features
        classifier = linear_classifier(trainee.network, trainee.backbone.classifier)
        logits = linear(features, classifier.weight.detach(), classifier.bias.detach())
        yield {
            "information": losses.information(logits),
            "pseudo_labels": self.weight * pseudo.cross_entropy(logits, batch.places),
        }


@torch.no_grad()
def centroid_labels(features: Tensor, logits: Tensor) -> Tensor:
    """Returns the class of the nearest centroid by cosine, `(M,)`.

    Centroids are means of features `(M, D)` and a constant 1, first weighted by the predictions,
    then by the labels that these centroids give. Classes that are never predicted get no label.
    """
    constant = torch.ones_like(features[:, :1])
    unit = normalize(torch.cat([features, constant], 1))
    weights, classes = logits.softmax(1), logits.shape[1]
    absent = logits.argmax(1).bincount(minlength=classes) == 0
    for _ in range(2):
        centroids = weights.t() @ unit / weights.sum(0)[:, None].clamp_min(1e-8)
        similarity = unit @ normalize(centroids).t()
        labels = similarity.masked_fill(absent, -2.0).argmax(1)
        weights = one_hot(labels, classes).to(unit)
    return labels


create = Shot
