"""Logistic regression on features as the classifier, before training (LP-FT) or after it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dial.layers import AlignedLayer, DomainAlignment, to_network, use_domain_if_any
from dial.methods.interface import Images, Output, Trainee, linear_classifier
from dial.references import Statistics

_REGULARIZATION = 0.1


@torch.no_grad()
def start_from_probe(trainee: Trainee, images: Images) -> None:
    """Initialize the classifier by logistic regression on the source's features.

    A random classifier's first gradients distort pretrained features; those of a fitted one do
    not (Kumar et al. 2022, <https://arxiv.org/abs/2202.10054>). It is then fine-tuned like the
    rest. DA-layers around it start such that the source's features and logits stay as they are.
    """
    linear_classifier(trainee.network, trainee.backbone.classifier)  # fail before the slow part
    start_from_features(trainee, extract_sources(trainee, images), images.source_labels)


@torch.no_grad()
def start_from_features(trainee: Trainee, features: Mapping[str, Tensor], labels: Tensor) -> None:
    """Initialize the classifier by logistic regression on the sources' features.

    Args:
        trainee: with the classifier.
        features: `(N, D)`, of each source and, for the statistics of a DA-layer before the
            classifier, of targets.
        labels: of all sources, in the order of `trainee.backbone.sources`.
    """
    backbone = trainee.backbone
    source = torch.cat([features[domain] for domain in backbone.sources])
    weight, bias = fit_classifier(trainee, source, labels, regularization=_REGULARIZATION)
    classifier = trainee.network.get_submodule(backbone.classifier)
    around = classifier if isinstance(classifier, AlignedLayer) else None
    if around is not None and around.before is not None and not _whitens(around.before):
        _keep_features(around.before, features, backbone.sources)
    if around is not None and around.after is not None:
        alignment: Any = around.after
        logits = source.double().cpu() @ weight.t() + bias
        alignment.weight.copy_(logits.std(0, correction=0))
        alignment.bias.copy_(logits.mean(0))
    new = tuple(name for name in backbone.new if name != backbone.classifier)
    trainee.backbone = replace(backbone, new=new)


def _keep_features(
    layer: DomainAlignment, features: Mapping[str, Tensor], sources: Sequence[str]
) -> None:
    """Give a DA-layer the domains' statistics, and the affine with which the source is unchanged.

    Args:
        layer: a DA-layer with an affine, whose statistics and affine gave these features.
        features: its outputs for each domain, `(N, D)`; a domain without any gets the
            statistics of all sources together.
        sources: the names of the sources.
    """
    weight, bias = (part.clone() for part in layer.affine_of(sources[0]) if part is not None)
    old_location, old_scale = _frozen(layer, sources[0])
    inputs = {}
    for domain, y in features.items():
        location, scale = _frozen(layer, domain)
        inputs[domain] = (y.to(weight.device).double() - bias) / weight * scale + location
    joint = layer.reference.estimate(torch.cat([inputs[domain] for domain in sources]))
    for domain in layer.domains:
        own = layer.reference.estimate(inputs[domain]) if domain in inputs else joint
        layer.set_statistics(domain, own)
    location, scale = _of_statistics(layer, joint)
    for parameter, value in (
        (layer.bias, bias + weight * (location - old_location) / old_scale),
        (layer.weight, weight * (scale / old_scale)),
    ):
        if parameter is not None:
            parameter.copy_(value)  # into each row, if there is one for each domain


def _whitens(layer: DomainAlignment) -> bool:
    """Whether the scale is a matrix, which no affine of single channels makes up for."""
    return layer.spread is not None and layer.spread.dim() > 2  # noqa: PLR2004


def _frozen(layer: DomainAlignment, domain: str) -> tuple[Tensor, Tensor]:
    statistics: Any = layer.statistics(domain)
    return _of_statistics(layer, statistics)


def _of_statistics(layer: DomainAlignment, statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Returns location and scale, in float64."""
    location, square = layer.reference.transform(statistics, layer.prior)
    return location.double().clone(), square.double().sqrt()  # not a view of the buffers


@torch.no_grad()
def extract(trainee: Trainee, batches: Iterable[Tensor], domain: str) -> Output:
    """Returns all outputs in eval mode, with the domain's statistics if there are any."""
    trainee.eval()
    with use_domain_if_any(trainee, domain):
        outputs = [trainee(to_network(images, trainee)) for images in batches]
    logits, features = (
        torch.cat([part.float() for part in parts]) for parts in zip(*outputs, strict=True)
    )
    return Output(logits, features)


def extract_sources(trainee: Trainee, images: Images) -> dict[str, Tensor]:
    """Returns the features of each source by its name, in the order of the labels."""
    sources = images.sources.items()
    return {domain: extract(trainee, batches, domain).features for domain, batches in sources}


@torch.no_grad()
def fit_classifier(
    trainee: Trainee, features: Tensor, labels: Tensor, *, regularization: float
) -> tuple[Tensor, Tensor]:
    """Make the classifier a logistic regression on features `(N, D)` with `K` classes.

    `regularization` is scikit-learn's `C`, the inverse of the L2 penalty's weight. Returns weight
    `(K, D)` and bias `(K,)` in float64.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=regularization, max_iter=1000)
    model.fit(features.cpu().numpy(), labels.cpu().numpy())
    weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
    if len(weight) == 1:  # two classes have one row, the log-odds of the second
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    layer = linear_classifier(trainee.network, trainee.backbone.classifier)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
    return weight.double(), bias.double()
