"""Losses of domain adaptation: plain functions of a network's outputs."""

import math

import torch
from torch import Tensor, nn

from dial.errors import DialError
from dial.layers import DomainAlignment
from dial.references import widen


def entropy(logits: Tensor) -> Tensor:
    """Returns the mean over samples of `-sum_y p_y log p_y`, `p = softmax(logits)`, in nats.

    Args:
        logits: `(N, K)`, or `(N, K, *)` with a prediction at each position.

    >>> round(float(entropy(torch.zeros(5, 8))), 4) == round(float(torch.tensor(8.0).log()), 4)
    True
    """
    log_p = torch.log_softmax(widen(logits), dim=1)
    # Where p is 0, log p is a large finite number: the product is 0 and so is its gradient.
    return -(log_p.exp() * log_p).sum(dim=1).mean()


def information(logits: Tensor, marginal: Tensor | None = None) -> Tensor:
    """Returns the negative mutual information of images and predictions, in nats.

    It is the entropy of the predictions minus the entropy of their mean: least if each prediction
    is certain and all classes are predicted equally often (Liang et al. 2020,
    https://arxiv.org/abs/2002.08546).

    The mean over few images is far from the classes' shares: of 24 images of 31 classes the loss
    would keep apart those that belong together. With a `marginal` the entropy of the mean becomes
    its cross-entropy with that, which has the same gradient where the two are equal.

    Args:
        logits: `(N, K)`.
        marginal: `(K,)`, the mean prediction over many images, without gradient.

    >>> round(float(information(100 * torch.eye(4))), 4)
    -1.3863
    """
    logs = torch.log_softmax(widen(logits), dim=1)
    # By logarithms, which stay finite where a class has no probability, with their gradients.
    mean = torch.logsumexp(logs, 0) - math.log(len(logs))
    if marginal is not None:
        least = torch.finfo(mean.dtype).tiny  # a class that is never predicted
        expected = marginal.detach().to(mean).clamp_min(least).log()
        return entropy(logits) + (mean.exp() * expected).sum()
    of_the_mean: Tensor = -(mean.exp() * mean).sum()
    return entropy(logits) - of_the_mean


def class_confusion(logits: Tensor, temperature: float = 2.5) -> Tensor:
    """Returns how much a batch's predictions confuse classes, from 0 to 1 (MCC).

    The correlation of classes is `p^T diag(w) p` with `p = softmax(logits / temperature)` and the
    weights of images `w = 1 + exp(-entropy(p))`, without gradient. Its rows are divided by their
    sums. The loss is the sum of all but the diagonal, over `K`.
    https://arxiv.org/abs/1912.03699

    Args:
        logits: `(N, K)`, of the target.
        temperature: above 0; higher ones soften the predictions.

    >>> round(float(class_confusion(torch.zeros(5, 8))), 4)
    0.875
    """
    log_p = torch.log_softmax(widen(logits) / temperature, dim=1)
    p = log_p.exp()
    weights = 1 + (p * log_p).sum(dim=1, keepdim=True).exp().detach()
    # Row j, divided by its sum, is the mean of p over the images, weighted by `w p_j`. As a
    # softmax of logarithms it has no 0 / 0 for a class whose probabilities are all 0.
    shares = torch.softmax(weights.log() + log_p, dim=0)
    return 1 - (shares * p).sum(dim=0).mean()


def sparsity(model: nn.Module) -> Tensor:
    """Returns the mean absolute value of the centered activations `x - b`, not divided by `s`.

    It is the mean over each DA-layer's last training batch of each domain, averaged over layers
    and domains (Ren et al. 2016, https://arxiv.org/abs/1611.04520). Call it between the forward
    pass (or passes) and the backward pass, which frees the activations. A compiled network does
    not keep them.

    Raises:
        DialError: no DA-layer holds activations.
    """
    layers = [module for module in model.modules() if isinstance(module, DomainAlignment)]
    terms = [x.abs().mean() for layer in layers for x in layer.centered()]
    if not terms:
        raise DialError(
            wanted="activations of a training step in DA-layers",
            got=f"{len(layers)} DA-layers, none with activations",
            fix="call sparsity(model) after a forward pass in training mode with gradients on, "
            "before backward(), and without torch.compile",
        )
    return torch.stack(terms).mean()


def mean_distance(source: Tensor, target: Tensor) -> Tensor:
    """Returns the squared norm of the difference of two samples' means (DDC).

    https://arxiv.org/abs/1412.3474

    Args:
        source: `(N, D)`.
        target: `(M, D)`.
    """
    return (widen(source).mean(0) - widen(target).mean(0)).square().sum()


def mmd(source: Tensor, target: Tensor) -> Tensor:
    """Returns the squared maximum mean discrepancy with five Gaussian kernels (DAN).

    `mean k(s, s') + mean k(t, t') - 2 mean k(s, t)` over all pairs, with
    `k(x, y) = sum_i exp(-|x - y|^2 / b_i)`. The bandwidths `b_i` are 1/4, 1/2, 1, 2
    and 4 times the mean squared distance of two samples of either domain, without gradient.
    https://arxiv.org/abs/1502.02791

    Args:
        source: `(N, D)`.
        target: `(M, D)`; `M` may differ from `N`.
    """
    x = torch.cat([widen(source), widen(target)])
    squares = x.square().sum(1)
    distance = (squares[:, None] + squares[None] - 2 * x @ x.t()).clamp_min(0)
    count = len(x)
    mean = (distance.detach().sum() / (count * count - count)).clamp_min(1e-12)
    kernel = torch.stack([torch.exp(-distance / (mean * 2.0**i)) for i in range(-2, 3)]).sum(0)
    n = len(source)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


def coral(source: Tensor, target: Tensor) -> Tensor:
    """Returns the squared distance of two samples' covariances, over `4 D^2` (Deep CORAL).

    https://arxiv.org/abs/1607.01719

    Args:
        source: `(N, D)`.
        target: `(M, D)`.
    """
    difference = torch.cov(widen(source).t()) - torch.cov(widen(target).t())
    return difference.square().sum() / (4 * source.shape[1] ** 2)
