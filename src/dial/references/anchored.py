"""The standard normal distribution, MAP with the pretrained network's statistics as prior."""

from dataclasses import dataclass

from torch import Tensor

from dial.errors import DialError
from dial.references._variants import read_number
from dial.references.interface import MomentReference, Statistics


@dataclass(frozen=True)
class Anchored(MomentReference):
    """The batch's moments, drawn towards the pretrained network's (`mean0`, `var0`):

        b    = w mean + (1 - w) mean0
        s**2 = w var + (1 - w) var0 + w (1 - w) (mean - mean0)**2 + eps

    This is the mode of the posterior under a Normal-Inverse-Gamma prior. `w`, the weight of the
    data, is n / (n + strength of the prior): `w = 1` is `Normal`, and `w -> 0` is fine-tuning with
    frozen statistics. A layer without pretrained statistics is `Normal`.
    """

    weight: float = 0.2
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise DialError(
                wanted="a weight of the data in (0, 1] for the anchored reference",
                got=repr(self.weight),
                fix="use 1 for plain batch statistics, 0.1 or 0.2 for small batches",
            )

    def uses_prior(self) -> bool:
        """The prior is the anchor."""
        return True

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:
        """Returns the mode of the posterior."""
        mean, var = statistics
        if prior is None:
            return mean, var + self.eps
        w, (mean0, var0) = self.weight, prior
        square = var0 + w * (var - var0) + w * (1 - w) * (mean - mean0) ** 2 + self.eps
        return mean0 + w * (mean - mean0), square


def create(*, variant: str | None = None, eps: float = 1e-5) -> Anchored:
    """Returns the entry `anchored`, or `anchored:WEIGHT`.

    Raises:
        DialError: a weight that is not a number in (0, 1].
    """
    if variant is None:
        return Anchored(eps=eps)
    about = "W with W, the weight of the data, in (0, 1]"
    return Anchored(read_number("anchored", variant, about=about, example="0.5"), eps)
