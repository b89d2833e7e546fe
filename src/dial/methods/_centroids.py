"""A nearest-centroid classifier: the centroids of the target's features by predicted class."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from dial.backbones import hidden_features
from dial.head import scale_for_confidence
from dial.layers import to_network
from dial.methods.interface import linear_classifier

_SHARPNESS = 2.0
_SCALE_IMAGES = 2000  # images that the scale of the logits is estimated from


@torch.no_grad()
def set_centroid_classifier(
    network: nn.Module, images: Iterable[Tensor], *, classifier: str
) -> bool:
    """Replace the classifier of a plain network by the target's class centroids.

    With features `f`, the centroid of class `k` is the mean of `f / |f|` weighted by
    `softmax(2 logits)_k`: one step of spherical k-means from the network's own predictions, as
    SHOT makes pseudo-labels (Liang et al. 2020, <https://arxiv.org/abs/2002.08546>). The new
    logits are `scale * centroid / |centroid| . f`; the scale keeps the mean confidence.

    Args:
        network: in eval mode.
        images: target images in batches.
        classifier: the name of the classifier in the network.

    Returns:
        Whether the classifier was replaced. It stays if some class is predicted for no image,
        because such a class has no centroid.
    """
    layer = linear_classifier(network, classifier)
    sums = torch.zeros_like(layer.weight, dtype=torch.float64)
    counts = torch.zeros_like(sums[:, 0], dtype=torch.int64)
    samples: list[tuple[Tensor, Tensor]] = []
    with hidden_features(network, classifier) as hidden:
        for batch in images:
            logits, features = network(to_network(batch, network)).float(), hidden.pop().float()
            weights = (_SHARPNESS * logits).softmax(1).double()
            sums += weights.t() @ normalize(features).double()
            counts += logits.argmax(1).bincount(minlength=len(counts))
            if sum(len(sample) for sample, _ in samples) < _SCALE_IMAGES:
                samples.append((logits, features))
    if not counts.all():
        return False
    centroids = normalize(sums).float()
    logits, features = (torch.cat(parts) for parts in zip(*samples, strict=True))
    confidence = float(logits.softmax(1).amax(1).mean())
    scale = scale_for_confidence(features @ centroids.t(), confidence)
    set_classifier(network, classifier, scale * centroids, torch.zeros_like(layer.bias))
    return True


@torch.no_grad()
def set_classifier(network: nn.Module, classifier: str, weight: Tensor, bias: Tensor) -> None:
    """Change a network's linear classifier, and remove a DA-layer or BatchNorm after it.

    A DA-layer before it stays: weight `(K, D)` and bias `(K,)` are for `hidden_features`.
    """
    layer = linear_classifier(network, classifier)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
    around = network.get_submodule(classifier)
    while isinstance(around, nn.Sequential):
        place = next(i for i, m in enumerate(around) if layer in m.modules())
        del around[place + 1 :]
        around = around[place]
