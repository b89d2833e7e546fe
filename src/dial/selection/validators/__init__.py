"""Validators, one a file: how good a run is on the target, told without the target's labels."""

import math
import sys
from typing import Any

from dial import registry
from dial.errors import DialError
from dial.selection.outputs import Outputs
from dial.selection.validators._soundness import keep_the_source, right_of_source

__all__ = [
    "DEFAULT",
    "NoScoreError",
    "check",
    "describe",
    "keep_the_source",
    "names",
    "needs_held_out",
    "right_of_source",
    "score",
]

DEFAULT = "information_maximisation"
"""What `--entropy auto` chooses by, among the runs that `keep_the_source`."""


class NoScoreError(DialError):
    """A validator can make nothing of a run's outputs."""


def names() -> tuple[str, ...]:
    """The validators there are.

    >>> DEFAULT in names()
    True
    """
    return registry.names(sys.modules[__name__])


def describe() -> dict[str, str]:
    """Every validator's name with one line about it."""
    return registry.describe(sys.modules[__name__])


def _load(name: str) -> Any:
    return registry.load(sys.modules[__name__], name)


def needs_held_out(name: str) -> bool:
    """Whether a validator judges by source images that were not trained on.

    >>> needs_held_out("source_accuracy")
    True
    """
    return bool(_load(name).NEEDS_HELD_OUT)


def check(name: str, *, held_out: bool, reason: str) -> None:
    """Refuse a validator that does not exist, or that needs images which are not there.

    Args:
        name: the validator's.
        held_out: whether there are source images that are not trained on.
        reason: why there are none, if so.
    """
    if needs_held_out(name) and not held_out:
        free = ", ".join(other for other in names() if not needs_held_out(other))
        raise DialError(
            wanted=f"source images that are not trained on, which {name} judges by",
            got=reason,
            fix=f"give a larger --holdout or more images, or a validator without them: {free}",
        )


def score(name: str, outputs: Outputs) -> float:
    """What a validator makes of a run's outputs; higher is better.

    Raises:
        DialError: no such validator, or no held-out source for a validator that needs one.
        NoScoreError: outputs that are not finite.
    """
    check(name, held_out=outputs.held_out is not None, reason="none in the run's outputs")
    value = float(_load(name).score(outputs))
    if not math.isfinite(value):
        raise NoScoreError(
            wanted=f"outputs that {name} can judge",
            got=f"a score of {value}",
            fix="look at the run's losses; a lower --lr or --entropy keeps outputs finite",
        )
    return value
