"""Adaptation methods, one a file: what a step minimises, and what is done at the end."""

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dial import registry
from dial.errors import DialError
from dial.methods.interface import Method, Trainee

__all__ = ["Method", "Trainee", "create", "describe", "names"]


def names() -> tuple[str, ...]:
    """The methods there are.

    >>> "dial" in names() and "source_only" in names()
    True
    """
    return registry.names(sys.modules[__name__])


def kind(name: str) -> type[Method]:
    """The class of a method; its fields are the method's settings."""
    found: type[Method] = registry.load(sys.modules[__name__], name).METHOD
    return found


def create(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """A method by its name, with some of its fields set; None leaves a field at its default.

    Raises:
        DialError: no such method, or a setting that it does not have.

    >>> create("adabn_coral", {"start": "probe"})
    AdaBNCoral(start='probe', statistics='batch', regularisation=1.0)
    """
    chosen = {key: value for key, value in (settings or {}).items() if value is not None}
    known = [field.name for field in fields(kind(name))]
    surplus = [key for key in chosen if key not in known]
    if surplus:
        raise DialError(
            wanted=f"settings of the method {name} ({', '.join(known) or 'it has none'})",
            got=", ".join(surplus),
            fix="leave those out, or choose the method that has them",
        )
    return kind(name)(**chosen)


def describe() -> dict[str, str]:
    """Every method's name with one line about it."""
    return registry.describe(sys.modules[__name__])
