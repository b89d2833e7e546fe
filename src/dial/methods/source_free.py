"""Source-free: a finished network goes on to a new target, without any source images."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from dial import losses
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.errors import DialError
from dial.layers import DomainAlignment, calibrate, fold, use_domain_if_any
from dial.methods._agreement import agreement
from dial.methods._head import Fitted, fit_to_target, make_candidate
from dial.methods._probe import extract
from dial.methods._pseudo_labels import PseudoLabels
from dial.methods.interface import (
    Candidate,
    Images,
    Method,
    Output,
    Terms,
    Trainee,
    add_terms,
    linear_classifier,
    shares,
    split_places,
    target_of,
)
from dial.references import Reference

_PER_CLASS = 10  # images of each class over which the mean prediction is taken


@dataclass(frozen=True, kw_only=True)
class SourceFree(Method):
    """A network that was trained elsewhere, adapted by the target's images alone.

    Its BatchNorms become DA-layers, anchored to the network's own statistics. As in SHOT (Liang et
    al. 2020, <https://arxiv.org/abs/2002.08546>) the classifier is kept and the rest minimizes
    `information * information(target) + pseudo_labels * cross_entropy(target)`, here on the labels
    of the self-trained head, with class prototypes in place of a source. The head also sees the
    features of the pretrained network that the model was trained from, if there is one, and the
    first head sees these alone: training on a source forgets what the target needs (Zhang et al.
    2023, <https://arxiv.org/abs/2212.07585>). The training starts from the network as it came, or
    from the pretrained one with that head. Of the network as it came, the trained one, and that
    with the head, the best one without labels is chosen.
    """

    needs_source = False
    takes_labelled = True
    without = "the model that the run started from"

    reference: str | Reference = "anchored:0.1"
    """Reference distribution; anchored takes the network's own statistics as its prior."""
    information: float = 1.0
    """Weight of the target's entropy minus that of the mean prediction over many steps."""
    pseudo_labels: float = 0.3
    """Weight of the cross-entropy on the target's pseudo-labels, those of the head."""
    refits: int = 5
    """How often pseudo-labels are made, evenly over the training, from its beginning."""

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the network with DA-layers for its BatchNorms, if it has any."""
        linear_classifier(backbone.network, backbone.classifier)  # fail before training
        if backbone.normalizes():
            backbone.convert(self.reference)
        backbone = replace(backbone, frozen=(*backbone.frozen, backbone.classifier))
        backbone.freeze()
        if not any(parameter.requires_grad for parameter in backbone.network.parameters()):
            raise DialError(
                wanted="a network with layers to train before its classifier",
                got=f"{backbone.name}, which has none that are not frozen",
                fix="--steps 0 takes statistics alone; or give fewer layers in frozen",
            )
        return Trainee(backbone, extra=_State(len(backbone.targets), backbone.num_classes))

    @property
    def refreshes(self) -> tuple[float, ...]:  # type: ignore[override]
        """The parts of the training at which pseudo-labels are renewed; `begin` makes the first."""
        return tuple(number / self.refits for number in range(1, self.refits))

    def reference_for(self, backbone: Backbone) -> str | Reference:  # noqa: ARG002
        """Returns the reference; a network without BatchNorms does not use it."""
        return self.reference

    def begin(self, trainee: Trainee, images: Images) -> dict[str, Candidate]:
        """Make pseudo-labels; returns the network as it came, for each target.

        The features of such a candidate are those of the pretrained network, if there is one. The
        training then starts from the pretrained network with the head, if neighbors agree better
        with that than with the network as it came.
        """
        own = {domain: extract(trainee, each, domain) for domain, each in images.targets.items()}
        fitted = {domain: self._fit_first(trainee, images, domain, own[domain]) for domain in own}
        self._renew(trainee, images, fitted)
        first = {
            domain: make_candidate("start", trainee, each, own_classifier=True)
            for domain, each in fitted.items()
        }
        if images.pretrained is not None and len(own) == 1:  # of several targets each has its head
            domain = images.domain
            spaces = [(each.source, each.target) for each in first.values()]
            own_prototypes, labels = self._prototypes(trainee, images, own[domain])
            spaces.append((own_prototypes, own[domain].features))
            anew = make_candidate("", Trainee(images.pretrained), fitted[domain])
            predictions = [each.logits.argmax(1) for each in (first[domain], anew)]
            before, after = agreement(predictions, labels, spaces)
            network = replace(images.pretrained, network=anew.network)
            if after > before and _start_from(trainee, network):
                trainee.extra.expect(0, anew.logits)  # type: ignore[operator, union-attr]
        return first

    def _fit_first(self, trainee: Trainee, images: Images, domain: str, output: Output) -> Fitted:
        """Fit a head to the pretrained network's features, if there is one, or to the network's."""
        if images.pretrained is not None:
            network = Trainee(images.pretrained).to(output.features.device)
            features = extract(network, images.targets[domain], domain).features
            output = output._replace(features=features)
        known = self._prototypes(trainee, images, output, pretrained=True)
        # What classes look like is known best by what is remembered of the source.
        trained = images.prototypes is None or images.pretrained is None
        return self._fit(images, domain, output, known, trained=trained)

    def refresh(self, trainee: Trainee, images: Images, first: Mapping[str, Candidate]) -> None:
        """Fit the head to the features as they are now, and renew the pseudo-labels."""
        fitted = {domain: self._refit(trainee, images, domain, first[domain]) for domain in first}
        self._renew(trainee, images, fitted)

    def _renew(self, trainee: Trainee, images: Images, fitted: Mapping[str, Fitted]) -> None:
        state: Any = trainee.extra
        labels = {n: (each.head.labels, each.head.confidence) for n, each in fitted.items()}
        state.renew(labels, images.starts)
        for target, each in enumerate(fitted.values()):
            state.expect(target, each.target.logits)

    def terms(self, trainee: Any, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields the terms of all targets, and of labelled images of the only one."""
        images, sizes = target_of(batch), shares(trainee.backbone.targets, target_of(batch))
        places = split_places(batch, sizes)
        parts = images.split([*sizes.values()])
        terms: Terms = {}
        for target, (domain, of_target, rows) in enumerate(zip(sizes, parts, places, strict=True)):
            joint = of_target if batch.labelled is None else torch.cat([of_target, batch.labelled])
            with use_domain_if_any(trainee, domain):
                logits = trainee(joint).logits
            own, labelled = logits[: len(of_target)], logits[len(of_target) :]
            terms = add_terms(terms, self._target(trainee, target, own, rows))
            if batch.known is not None:
                loss = nn.functional.cross_entropy(labelled.float(), batch.known)
                terms = add_terms(terms, {"labelled": loss})
        yield terms

    def _target(self, trainee: Any, target: int, logits: Tensor, places: Tensor | None) -> Terms:
        share = 1 / len(trainee.backbone.targets)
        memory = _PER_CLASS * logits.shape[1]
        marginal = trainee.extra.expect(target, logits.detach(), images=memory)
        information = losses.information(logits, marginal)
        terms = {"information": self.information * share * information}
        if self.pseudo_labels and len(trainee.extra.labels):
            loss = trainee.extra.cross_entropy(logits, places)
            terms["pseudo_labels"] = self.pseudo_labels * share * loss
        return terms

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Compute the statistics of the target, over all its images."""
        if trainee.backbone.normalizes():
            calibrate(trainee.network, images.target, domain=images.domain)

    def candidates(
        self, trainee: Trainee, images: Images, first: Candidate | None
    ) -> list[Candidate]:
        """Returns the trained network with its own classifier, and with a head."""
        if first is None:
            return []
        fitted = self._refit(trainee, images, images.domain, first)
        return [
            make_candidate("classifier", trainee, fitted, own_classifier=True),
            make_candidate("head", trainee, fitted),
        ]

    def figures(self, trainee: Trainee) -> dict[str, Any]:
        """Returns which network the training started from."""
        anew = trainee.extra.starts_anew  # type: ignore[union-attr]
        return {"trained_from": "pretrained" if anew else "model"}

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        """Returns the trained network with the target's statistics."""
        is_aligned = trainee.backbone.normalizes()
        network = trainee.network.eval()
        return fold(network, images.domain, fuse=False) if is_aligned else network

    def _refit(self, trainee: Trainee, images: Images, domain: str, first: Candidate) -> Fitted:
        output = extract(trainee, images.targets[domain], domain)
        known = self._prototypes(trainee, images, output)
        return self._fit(images, domain, output, known, before=first)

    def _prototypes(
        self, trainee: Trainee, images: Images, output: Output, *, pretrained: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Returns prototypes and their labels, by the network or by the pretrained one."""
        if images.prototypes is not None:
            centroids, labels, before = images.prototypes
            if before is not None and (pretrained or trainee.extra.starts_anew):  # type: ignore[union-attr]
                centroids = before
            return centroids.to(output.features), labels
        classifier = linear_classifier(trainee.network, trainee.backbone.classifier)
        centroids = guess_prototypes(output, classifier.weight)
        return centroids, torch.arange(len(centroids))

    def _fit(
        self,
        images: Images,
        domain: str,
        output: Output,
        known: tuple[Tensor, Tensor],
        *,
        before: Candidate | None = None,
        trained: bool = True,
    ) -> Fitted:
        given = images.given(domain)
        head, moved = fit_to_target(known, output, before=before, trained=trained, given=given)
        return Fitted(domain, head, {}, moved, known[0].cpu(), known[1].cpu())


class _State(PseudoLabels):
    """Pseudo-labels, the mean prediction for each target, and where the training starts."""

    starts_anew = False
    """Whether the training starts from the pretrained network."""

    def __init__(self, targets: int, num_classes: int) -> None:
        super().__init__()
        self.marginals: Tensor
        self.register_buffer("marginals", torch.full((targets, num_classes), 1 / num_classes))

    @torch.no_grad()
    def expect(self, target: int, logits: Tensor, *, images: float | None = None) -> Tensor:
        """Take predictions into a target's mean, and return it.

        `images` is what the mean so far counts for; by default nothing is left of it.
        """
        rate = 1.0 if images is None else len(logits) / (len(logits) + images)
        mean = logits.float().softmax(1).mean(0).to(self.marginals)
        self.marginals[target].lerp_(mean, rate)
        return self.marginals[target].clone()


def _start_from(trainee: Trainee, pretrained: Backbone) -> bool:
    """Replace the network's tensors by those of another one, if they are of the same shapes.

    Returns whether they are.
    """
    backbone = trainee.backbone
    if backbone.normalizes():
        reference = next(m for m in trainee.modules() if isinstance(m, DomainAlignment)).reference
        domains = (*backbone.sources, *backbone.targets)
        entry = replace(pretrained, append_after=(), insert_before=())
        entry.convert(reference, domains)
    state, own = pretrained.network.state_dict(), trainee.network.state_dict()
    if {k: v.shape for k, v in state.items()} != {k: v.shape for k, v in own.items()}:
        return False
    trainee.network.load_state_dict(state)
    trainee.extra.starts_anew = True  # type: ignore[union-attr]
    return True


@torch.no_grad()
def guess_prototypes(output: Output, weight: Tensor) -> Tensor:
    """Returns class prototypes `(K, D)` by a network's own predictions on the target.

    A centroid is the mean of the features weighted by the squared probability of the class, less
    the mean of all. A class that is predicted for no image has the direction of its row in the
    classifier's weight `(K, D)` instead: without it, a network that predicts a single class would
    agree with its prototypes everywhere.
    """
    probabilities = output.logits.softmax(1)
    counts = probabilities.argmax(1).bincount(minlength=probabilities.shape[1])
    weights = normalize(probabilities.square(), p=1, dim=0)
    centered = output.features - output.features.mean(0)
    centroids = weights.t() @ centered
    size = centroids[counts > 0].norm(dim=1).mean()
    directions = size * normalize(weight.to(centroids) - weight.to(centroids).mean(0))
    return torch.where((counts > 0)[:, None], centroids, directions)


create = SourceFree
