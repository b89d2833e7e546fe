"""Reference distributions, one a file: what a DA-layer maps every domain's activations onto."""

import sys

from dial import registry
from dial.errors import DialError
from dial.references.anchored import Anchored
from dial.references.interface import Reference, Shared, Statistics, Tracking
from dial.references.laplace import Laplace
from dial.references.normal import Normal

__all__ = [
    "Anchored",
    "Laplace",
    "Normal",
    "Reference",
    "Shared",
    "Statistics",
    "Tracking",
    "describe",
    "resolve",
]


def describe() -> dict[str, str]:
    """Every reference's name with one line about it."""
    return registry.describe(sys.modules[__name__])


def resolve(reference: "str | Reference", *, eps: float = 1e-5) -> Reference:
    """A reference by its name, with `eps` as its numerical constant, or the object as it is.

    A name may end in a number, where the reference has one: `anchored:0.5`.

    Raises:
        DialError: an unknown name, or an object without the interface of `Reference`.

    >>> resolve("epsilon")
    Normal(eps=1.0)
    >>> resolve("normal", eps=1e-3)
    Normal(eps=0.001)
    >>> resolve("anchored:0.5")
    Anchored(weight=0.5, eps=1e-05)
    """
    if isinstance(reference, str):
        return _by_name(reference, eps)
    methods = [name for name in vars(Reference) if not name.startswith("_")]
    missing = [name for name in methods if not hasattr(reference, name)]
    if missing or isinstance(reference, type):
        raise DialError(
            wanted="a reference distribution: a name or an object with the methods of "
            "dial.references.Reference",
            got=f"{reference!r}" + (f" without {', '.join(missing)}" if missing else ", a class"),
            fix="pass an instance of a subclass of dial.references.Reference",
        )
    return reference


def _by_name(reference: str, eps: float) -> Reference:
    name, colon, number = reference.partition(":")
    module = registry.load(sys.modules[__name__], name)
    if colon and not (hasattr(module, "create_variant") and _is_number(number)):
        raise DialError(
            wanted="a reference's name, or anchored:W with W, the weight of the data, in (0, 1]",
            got=repr(reference),
            fix=f"take {name}, or anchored:0.5",
        )
    entry: Reference = (
        module.create_variant(float(number), eps=eps) if colon else module.create(eps)
    )
    return entry


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
