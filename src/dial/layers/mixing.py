"""Mixing of domains: each one's statistics as a mixture of all domains' and the pretrained."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from dial.errors import DialError
from dial.references import MomentReference, Reference, Statistics

LEAST = 0.5
"""The least weight of a domain's own statistics in AutoDIAL."""


class Mixing(nn.Module, ABC):
    """A matrix `(D, D + 1)` of weights, none below 0, whose rows add up to 1.

    Row `i` is what domain `i` is normalized by: so much of the statistics of each of the `D`
    domains, and in the last column of those of the pretrained network. Where there are no such
    statistics, the domain's own take their weight.

    To make one of your own, implement `forward`. Its parameters are trained with the network.
    """

    @abstractmethod
    def forward(self) -> Tensor:
        """Returns the matrix; gradients of every pass in training mode reach it."""

    def uses_prior(self) -> bool:
        """Whether the last column is used, so that layers must keep the pretrained statistics."""
        return True


class FixedMixing(Mixing):
    """The same weights always.

    Args:
        weights: the matrix, a row for each domain.

    >>> anchored = FixedMixing([[0.2, 0.0, 0.8], [0.0, 0.2, 0.8]])  # is Anchored(0.2)
    """

    def __init__(self, weights: Sequence[Sequence[float]] | Tensor) -> None:
        super().__init__()
        self.weights: Tensor
        matrix = torch.as_tensor(weights, dtype=torch.get_default_dtype())
        self.register_buffer("weights", matrix, persistent=False)

    def forward(self) -> Tensor:
        """Returns the weights."""
        return self.weights

    def uses_prior(self) -> bool:
        """Whether a row has a weight in the last column."""
        return bool(self.weights[..., -1].any())


class LearnedMixing(Mixing):
    """AutoDIAL (Carlucci et al. 2017), <https://arxiv.org/abs/1704.08082>: one learned number.

    Every domain takes `own_weight` of its own statistics; the other domains share the rest
    evenly. It starts at 1, which is DIAL, and is clipped to [0.5, 1] at every pass.

    Args:
        domains: the names of two or more domains.
    """

    def __init__(self, domains: Sequence[str]) -> None:
        super().__init__()
        count = len(domains)
        if count < 2:  # noqa: PLR2004
            raise DialError(
                wanted="two or more domains to mix by autodial",
                got=f"domains={tuple(domains)!r}",
                fix="name another domain, or leave `mixing` out",
            )
        self.own_weight = nn.Parameter(torch.ones(()))
        own = torch.eye(count, count + 1)
        others = (1 - own) / (count - 1)
        others[:, -1] = 0
        self.own: Tensor
        self.others: Tensor
        self.register_buffer("own", own, persistent=False)
        self.register_buffer("others", others, persistent=False)

    def forward(self) -> Tensor:
        """Returns the matrix, after the parameter itself was clipped."""
        # A clip of the value alone would have no gradient outside of the range, and never return.
        with torch.no_grad():
            self.own_weight.clamp_(LEAST, 1)
        # A copy, which the clip of the next pass does not change before this one's backward pass.
        return torch.lerp(self.others, self.own, self.own_weight.clone())

    def uses_prior(self) -> bool:
        """The pretrained statistics have no weight."""
        return False


MIXINGS: dict[str, Callable[[tuple[str, ...]], Mixing]] = {"autodial": LearnedMixing}
"""Mixings by name: makers of one, from the names of the domains."""
MixingLike: TypeAlias = str | Mixing | Callable[[tuple[str, ...]], Mixing]


def mix(weights: Tensor, statistics: Sequence[Statistics]) -> Statistics:
    """Returns mean and variance of a mixture of `J` distributions.

        mean = sum w_j mean_j
        var  = sum w_j (var_j + (mean_j - mean)**2)

    Args:
        weights: `(J,)`, which add up to 1.
        statistics: means and variances, `(C,)` each.

    >>> pairs = torch.tensor([[0.0], [1.0]]), torch.tensor([[4.0], [3.0]])
    >>> [value.item() for value in mix(torch.tensor([0.5, 0.5]), [Statistics(*p) for p in pairs])]
    [2.0, 6.0]
    """
    means, variances = (torch.stack(parts) for parts in zip(*statistics, strict=True))
    column = weights.to(means.dtype)[:, None]
    mean = (column * means).sum(0)
    var = (column * (variances + (means - mean) ** 2)).sum(0)
    return Statistics(mean, var)


def resolve(mixing: MixingLike, domains: tuple[str, ...], reference: Reference) -> Mixing:
    """Returns the mixing of a layer: by name, made by a function, or the object itself.

    Raises:
        DialError: no such name, a reference that has no moments to mix, or a matrix of another
            shape or with other rows.
    """
    if not isinstance(reference, MomentReference):
        raise DialError(
            wanted="a reference whose statistics are mean and variance, to mix them",
            got=repr(reference),
            fix="use normal, epsilon or anchored, or leave `mixing` out",
        )
    if isinstance(mixing, str):
        if mixing not in MIXINGS:
            raise DialError(
                wanted=f"a mixing by name ({', '.join(MIXINGS)}), a dial.layers.Mixing, or a "
                "function of the domains that makes one",
                got=repr(mixing),
                fix="choose one of those",
            )
        mixing = MIXINGS[mixing]
    made = mixing if isinstance(mixing, Mixing) else mixing(domains)
    if not isinstance(made, Mixing):
        raise DialError(
            wanted="a dial.layers.Mixing", got=repr(made), fix="return an instance of a subclass"
        )
    _check(made, domains)
    return made


@torch.no_grad()
def _check(mixing: Mixing, domains: tuple[str, ...]) -> None:
    matrix, shape = mixing(), (len(domains), len(domains) + 1)
    if matrix.shape == shape:
        sums = matrix.double().sum(1)
        if bool((matrix >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
            return
    raise DialError(
        wanted=f"weights of the domains {', '.join(domains)} and of the pretrained statistics: a "
        f"matrix {shape}, none below 0, each row with the sum 1",
        got=str(matrix.tolist()),
        fix="give a row for each domain, with the pretrained statistics in the last column",
    )
