"""The standard normal distribution, MAP with the pretrained network's statistics as prior."""

from dataclasses import dataclass

from torch import Tensor

from dial.errors import DialError
from dial.references._moments import MomentReference
from dial.references.interface import Statistics


@dataclass(frozen=True)
class Anchored(MomentReference):
    """The batch's moments, drawn towards those the pretrained network had (`mu0`, `var0`):

        b    = w mean + (1 - w) mu0
        s**2 = w var + (1 - w) var0 + w (1 - w) (mean - mu0)**2 + eps

    This is the mode of the posterior under a Normal-Inverse-Gamma prior; `w`, the weight of the
    data, is n / (n + strength of the prior). `w = 1` is `Normal`, and for `w -> 0` the network
    is fine-tuned with frozen statistics. A layer without pretrained statistics is `Normal`.
    """

    weight: float = 0.2
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise DialError(
                wanted="a weight of the data in (0, 1] for the anchored reference",
                got=repr(self.weight),
                fix="take 1 for plain batch statistics, 0.1 or 0.2 for small batches",
            )

    def uses_prior(self) -> bool:
        """It does: the prior is the anchor."""
        return True

    def data_weight(self, prior: Statistics | None) -> float:
        """`w`, or 1 where there is nothing to be anchored to."""
        return 1.0 if prior is None else self.weight

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:
        """The posterior's mode."""
        mean, var = statistics
        if prior is None:
            return mean, var + self.eps
        mean0, var0 = prior
        spread = var0 + self.weight * (var - var0)
        spread = spread + self.weight * (1 - self.weight) * (mean - mean0) ** 2
        return mean0 + self.weight * (mean - mean0), spread + self.eps


def create(eps: float) -> Anchored:
    """The entry `anchored`."""
    return Anchored(eps=eps)


def create_variant(weight: float, *, eps: float) -> Anchored:
    """The entry `anchored:WEIGHT`."""
    return Anchored(weight, eps)
