"""Logistic regression on features as the classifier, before training (LP-FT) or after it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dial.layers import Appended, to_network, use_domain_if_any
from dial.methods.interface import Images, Output, Trainee, linear_classifier

_REGULARIZATION = 0.1


@torch.no_grad()
def start_from_probe(trainee: Trainee, images: Images) -> None:
    """Initialize the classifier by logistic regression on the source's features.

    A random classifier's first gradients distort pretrained features; those of a fitted one do
    not (Kumar et al. 2022, <https://arxiv.org/abs/2202.10054>). It is then fine-tuned like the
    rest. A DA-layer after it starts with the scale and shift that restore the source's logits.
    """
    linear_classifier(trainee.network, trainee.backbone.classifier)  # fail before the slow part
    features = torch.cat([output.features for output in extract_sources(trainee, images)])
    start_from_features(trainee, features, images.source_labels)


@torch.no_grad()
def start_from_features(trainee: Trainee, features: Tensor, labels: Tensor) -> None:
    """Initialize the classifier by logistic regression on features `(N, D)` of the source."""
    weight, bias = fit_classifier(trainee, features, labels, regularization=_REGULARIZATION)
    backbone = trainee.backbone
    classifier = trainee.network.get_submodule(backbone.classifier)
    if isinstance(classifier, Appended):
        alignment: Any = classifier[1]
        logits = features.double().cpu() @ weight.t() + bias
        alignment.weight.copy_(logits.std(0, correction=0))
        alignment.bias.copy_(logits.mean(0))
    new = tuple(name for name in backbone.new if name != backbone.classifier)
    trainee.backbone = replace(backbone, new=new)


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


def extract_sources(trainee: Trainee, images: Images) -> list[Output]:
    """Returns the outputs of each source, in the order of the labels."""
    return [extract(trainee, batches, domain) for domain, batches in images.sources.items()]


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
