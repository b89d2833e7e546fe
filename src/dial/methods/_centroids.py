"""A classifier made of the target's own features: the centre of each class as it is predicted."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import hidden_features
from dial.layers.calibration import to_network
from dial.methods.interface import linear_classifier

_SHARPENED = 2.0
_MEASURED = 2000  # images that the logits' scale is taken from
_SCALES = (1e-4, 1e4)


@torch.no_grad()
def refit(network: nn.Module, images: Iterable[Tensor], *, classifier: str) -> bool:
    """Put the target's class centres in place of a plain network's classifier.

    A centre is the mean direction of the features `f / |f|`, weighed by `softmax(2 logits)`, and
    an image belongs to the centre in whose direction it lies: a step of spherical k-means from
    the network's own predictions (as Liang et al. 2020 make pseudo-labels). Logits are
    `scale * centre / |centre| . f`, with the scale at which predictions are as sure as before.

    Args:
        network: in eval mode, its classifier alone or with a BatchNorm of ours behind it.
        images: of the target, in batches.
        classifier: the name of that layer.

    Returns:
        Whether it was done. A class that is predicted for no image has no centre; then the
        classifier stays.
    """
    layer = linear_classifier(network, classifier)
    sums = torch.zeros_like(layer.weight, dtype=torch.float64)
    counts = torch.zeros_like(sums[:, 0], dtype=torch.int64)
    kept: list[tuple[Tensor, Tensor]] = []
    with hidden_features(network, classifier) as found:
        for batch in images:
            logits, features = network(to_network(batch, network)).float(), found.pop().float()
            weights = (_SHARPENED * logits).softmax(1).double()
            sums += weights.t() @ normalize(features).double()
            counts += logits.argmax(1).bincount(minlength=len(counts))
            if sum(len(some) for some, _ in kept) < _MEASURED:
                kept.append((logits, features))
    if not counts.all():
        return False
    centres = normalize(sums).float()
    former, features = (torch.cat(parts) for parts in zip(*kept, strict=True))
    scale = _match(features @ centres.t(), former)
    layer.weight.copy_(scale * centres)
    layer.bias.zero_()
    _neutralise(network.get_submodule(classifier))
    return True


def _match(scores: Tensor, former: Tensor) -> float:
    """The scale of the scores at which their largest probabilities average to the former ones."""
    wanted = former.softmax(1).amax(1).mean()
    low, high = (torch.tensor(scale, dtype=torch.float64) for scale in _SCALES)
    for _ in range(40):  # it grows with the scale
        middle = (low * high).sqrt()
        below = (middle * scores.double()).softmax(1).amax(1).mean() < wanted
        low, high = (middle, high) if below else (low, middle)
    return float(middle)


def _neutralise(module: nn.Module) -> None:
    """Let a BatchNorm behind the classifier change nothing in eval mode."""
    for norm in module.modules():
        if isinstance(norm, _BatchNorm):
            norm.reset_parameters()
            assert norm.running_var is not None  # noqa: S101 - folded from statistics
            norm.running_var.fill_(1 - norm.eps)
