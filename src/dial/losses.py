"""Losses of domain adaptation: plain functions of a network's outputs."""

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
