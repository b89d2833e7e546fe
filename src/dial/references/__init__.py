"""Reference distributions, one per file: what a DA-layer maps every domain's activations onto."""

from dial.references._accumulators import (
    Accumulator,
    CovarianceAccumulator,
    MomentAccumulator,
    SampleAccumulator,
)
from dial.references._blocks import diagonal, inverse_root, multiply
from dial.references._fused import align, kept
from dial.references._synchronization import synchronize, unsynchronized
from dial.references.anchored import Anchored
from dial.references.generalized import Generalized
from dial.references.interface import (
    MomentReference,
    Reference,
    Shared,
    Statistics,
    Tracking,
    per_channel,
    transformed,
    widen,
)
from dial.references.laplace import Laplace
from dial.references.logistic import Logistic
from dial.references.normal import Normal
from dial.references.student import Student
from dial.references.whitened import Whitened
from dial.registry import Registry

__all__ = [
    "REFERENCES",
    "Accumulator",
    "Anchored",
    "CovarianceAccumulator",
    "Generalized",
    "Laplace",
    "Logistic",
    "MomentAccumulator",
    "MomentReference",
    "Normal",
    "Reference",
    "SampleAccumulator",
    "Shared",
    "Statistics",
    "Student",
    "Tracking",
    "Whitened",
    "align",
    "describe",
    "diagonal",
    "inverse_root",
    "kept",
    "multiply",
    "per_channel",
    "resolve",
    "synchronize",
    "transformed",
    "unsynchronized",
    "widen",
]

REFERENCES = Registry("dial.references", Reference)  # type: ignore[type-abstract]


def describe() -> dict[str, str]:
    """Returns one line about each reference, by name."""
    return REFERENCES.describe()


def resolve(reference: str | Reference, *, eps: float = 1e-5) -> Reference:
    """Returns a reference by its name, with `eps` as numerical constant, or the object itself.

    A name may end in a number, if the reference has one: `anchored:0.5`.

    Raises:
        DialError: an unknown name, or an object without the interface of `Reference`.

    >>> resolve("epsilon")
    Normal(eps=1.0)
    >>> resolve("normal", eps=1e-3)
    Normal(eps=0.001)
    >>> resolve("anchored:0.5")
    Anchored(weight=0.5, eps=1e-05)
    """
    return REFERENCES.create(reference, eps=eps)
