"""A classifier by logistic regression on features: at the start of a training, or at its end."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dial.layers.calibration import to_network
from dial.layers.context import use_domain_if_any
from dial.layers.conversion import Appended
from dial.methods.interface import Trainee, linear_classifier

_REGULARISATION = 0.1


def start(trainee: Trainee, images: Iterable[Tensor], labels: Tensor) -> None:
    """Begin with the classifier that fits the source's features as the network has them now.

    A random classifier's first gradients distort pretrained features (Kumar et al. 2022); this
    one's do not. It is then fine-tuned like the rest. A DA-layer behind it begins with the scale
    and shift that give the source's logits back.

    Args:
        trainee: made ready by a method.
        images: of the source, in batches.
        labels: `(N,)`, of these.

    Raises:
        DialError: the classifier is not linear.
    """
    known = trainee.backbone
    linear_classifier(trainee.network, known.classifier)  # to hear of another kind now
    features = features_of(trainee, images, "source")
    weight, bias = fit(features, labels, _REGULARISATION)
    put(trainee, weight, bias)
    behind = trainee.network.get_submodule(known.classifier)
    if isinstance(behind, Appended):
        logits = features.double().cpu() @ weight.t() + bias
        layer: Any = behind[1]
        with torch.no_grad():
            layer.weight.copy_(logits.std(0, correction=0))
            layer.bias.copy_(logits.mean(0))
    new = tuple(name for name in known.new if name != known.classifier)
    trainee.backbone = replace(known, new=new)


@torch.no_grad()
def features_of(trainee: Trainee, batches: Iterable[Tensor], domain: str) -> Tensor:
    """`(N, D)`, in eval mode, with the domain's statistics where the network has domains."""
    trainee.eval()
    with use_domain_if_any(trainee, domain):
        found = [trainee(to_network(images, trainee)).features.float() for images in batches]
    return torch.cat(found)


def fit(features: Tensor, labels: Tensor, regularisation: float) -> tuple[Tensor, Tensor]:
    """Logistic regression; weight `(K, D)` and bias `(K,)` of a softmax over `K` classes."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=regularisation, max_iter=1000)
    model.fit(features.cpu().numpy(), labels.cpu().numpy())
    weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
    if len(weight) == 1:  # two classes have one row, the log-odds of the second
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    return weight.double(), bias.double()


def put(trainee: Trainee, weight: Tensor, bias: Tensor) -> None:
    """Make it the network's classifier."""
    layer = linear_classifier(trainee.network, trainee.backbone.classifier)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
