"""The head on a network's features: fitted for each target, and the predictors that it makes."""

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dial.head import Head, align_means, fit_head
from dial.layers import DomainSpecific, fold
from dial.methods._centroids import set_classifier
from dial.methods._probe import extract, extract_sources
from dial.methods.interface import Candidate, Images, Output, Trainee


class Fitted(NamedTuple):
    """A head, and the outputs of the network whose features it was fitted to."""

    domain: str
    """The target's name in the DA-layers."""
    head: Head
    sources: dict[str, Tensor]
    """The features of each source, `(N, D)`."""
    target: Output
    aligned: Tensor
    """The source's features, with the means of several sources made equal, or its prototypes."""
    labels: Tensor
    """Of `aligned`."""


def fit_to_network(
    trainee: Trainee,
    images: Images,
    *,
    trained: bool,
    first: Mapping[str, Candidate] | None = None,
) -> dict[str, Fitted]:
    """Fit a head for each target to a network's features.

    Where the network is trained, its own logits are where the head starts. The features of the
    predictor from before training, `first`, have a part too.
    """
    sources = extract_sources(trainee, images)
    aligned, fitted = align_means([*sources.values()]), {}
    for domain, batches in images.targets.items():
        target = extract(trainee, batches, domain)
        head, moved = fit_to_target(
            (aligned, images.source_labels),
            target,
            before=(first or {}).get(domain),
            trained=trained,
            given=images.given(domain),
        )
        fitted[domain] = Fitted(domain, head, sources, moved, aligned.cpu(), images.source_labels)
    return fitted


def fit_to_target(
    known: tuple[Tensor, Tensor],
    target: Output,
    *,
    before: Candidate | None,
    trained: bool,
    given: Tensor | None,
) -> tuple[Head, Output]:
    """Returns a head, and the target's outputs on the CPU.

    Args:
        known: features of the source `(N, D)`, or of its prototypes, and their labels.
        target: outputs for the target's images.
        before: the predictor from before training, whose features have a part too.
        trained: whether the network's own logits are where the head starts.
        given: known labels of target images, as for `fit_head`.
    """
    aligned, labels = known
    device, spaces = target.features.device, [(aligned, target.features)]
    if before is not None:
        spaces = [(before.source.to(device), before.target.to(device)), *spaces]
    head = fit_head(
        spaces,
        labels.to(device),
        num_classes=target.logits.shape[1],
        guess=target.logits if trained else None,
        given=given,
    )
    # Moved once: candidates of one network share these tensors, by which they are told apart.
    return head, Output(*(part.cpu() for part in target))


@torch.no_grad()
def make_candidate(
    name: str, trainee: Trainee, fitted: Fitted, *, own_classifier: bool = False
) -> Candidate:
    """Returns the target's predictor with the head, or with the network's own classifier."""
    is_aligned = any(isinstance(module, DomainSpecific) for module in trainee.network.modules())
    network = copy.deepcopy(trainee.network).eval()
    head, (logits, features) = fitted.head, fitted.target
    if not own_classifier:
        logits = nn.functional.linear(features, head.weight.cpu(), head.bias.cpu())
        set_classifier(network, trainee.backbone.classifier, head.weight, head.bias)
    if is_aligned:  # with a DA-layer before the classifier, features are its output
        network = fold(network, fitted.domain, fuse=False)
    return Candidate(
        name,
        network,
        logits,
        target=features,
        source=fitted.aligned,
        absent=head.absent,
        labels=fitted.labels.cpu(),
    )
