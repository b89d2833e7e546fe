"""Loss terms of domain adaptation: plain functions of what a network gives."""

import torch
from torch import Tensor, nn

from dial.errors import DialError
from dial.kernels import widen
from dial.layers import DomainAlignment


def entropy(logits: Tensor) -> Tensor:
    """The mean over samples of `-sum_y p_y log p_y` with `p = softmax(logits)`, in nats.

    Args:
        logits: `(N, K)`, or `(N, K, *)` with a prediction at each position.

    >>> round(float(entropy(torch.zeros(5, 8))), 4) == round(float(torch.tensor(8.0).log()), 4)
    True
    """
    log_p = torch.log_softmax(widen(logits), dim=1)
    # Where p is 0, log p is a large finite number: the product is 0 and so is its gradient.
    return -(log_p.exp() * log_p).sum(dim=1).mean()


def sparsity(model: nn.Module) -> Tensor:
    """The mean absolute value of the centred activations `x - b` (before the division by `s`).

    Taken over each DA-layer's last training batch of each domain, then averaged over layers and
    domains (Ren et al. 2016). To be called between the forward pass (or passes) and the backward
    pass, which frees the activations; not available from a compiled network.

    Raises:
        DialError: no DA-layer holds activations.
    """
    layers = [module for module in model.modules() if isinstance(module, DomainAlignment)]
    terms = [x.abs().mean() for layer in layers for x in layer.centred()]
    if not terms:
        raise DialError(
            wanted="activations of a training step in DA-layers",
            got=f"{len(layers)} DA-layers, none with activations",
            fix="call sparsity(model) after a forward pass in training mode with gradients on, "
            "before backward(), and without torch.compile",
        )
    return torch.stack(terms).mean()
