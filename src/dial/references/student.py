"""Student's t distribution: maximum likelihood; outliers weigh less."""

from dataclasses import dataclass

from torch import Tensor

from dial.errors import DialError
from dial.references._reweighting import reweight
from dial.references._variants import read_number
from dial.references.interface import Reference, Statistics


@dataclass(frozen=True)
class Student(Reference):
    """`b` and `s` of the t distribution with `freedom` degrees of freedom that fits best.

    A value at `z = (x - b) / s` has the weight `(freedom + 1) / (freedom + z**2)` (Lange, Little
    and Taylor 1989). Many degrees of freedom give `Normal`, few ignore the tails.
    """

    freedom: float = 4.0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not self.freedom >= 1:
            raise DialError(
                wanted="1 or more degrees of freedom for the reference student",
                got=repr(self.freedom),
                fix="use student, or student:4",
            )

    def estimate(self, x: Tensor) -> Statistics:
        """Returns the location and the squared scale, `(C,)` each."""
        return reweight(x, self._weigh)

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the location and the squared scale."""
        location, square = statistics
        return location, square + self.eps

    def _weigh(self, u: Tensor) -> tuple[Tensor, Tensor]:
        below = u + self.freedom
        weights = (self.freedom + 1) / below
        return weights, -weights * u / below


def create(*, variant: str | None = None, eps: float = 1e-5) -> Student:
    """Returns the entry `student`, or `student:FREEDOM`.

    Raises:
        DialError: degrees of freedom that are no number of 1 or more.
    """
    if variant is None:
        return Student(eps=eps)
    about = "V with V, the degrees of freedom, of 1 or more"
    return Student(read_number("student", variant, about=about, example="4"), eps)
