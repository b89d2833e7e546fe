"""Validators, one a file: scores of a run on the target that need none of the target's labels."""

import math

from dial.errors import DialError
from dial.registry import Registry
from dial.selection.outputs import Outputs
from dial.selection.validators._precision import as_good_as_the_best as as_good_as_the_best
from dial.selection.validators._precision import score_without_groups
from dial.selection.validators._soundness import correct_on_source as correct_on_source
from dial.selection.validators._soundness import keep_the_source as keep_the_source
from dial.selection.validators.interface import Validator as Validator

VALIDATORS: Registry[Validator] = Registry(
    "dial.selection.validators",
    Validator,  # type: ignore[type-abstract]
    aliases={
        "information_maximisation": "information_maximization",
        "soft_neighbourhood_density": "soft_neighborhood_density",
    },
)
names, describe = VALIDATORS.names, VALIDATORS.describe

DEFAULT = "information_maximization"
"""The validator of `--entropy auto`, which takes the smallest value among the runs that
`keep_the_source` and of these are `as_good_as_the_best`."""


class NoScoreError(DialError):
    """A validator's score is not a finite number."""


def name_of(validator: str | Validator) -> str:
    """Returns the present name of a validator, or the class name of an object.

    >>> name_of("information_maximisation")
    'information_maximization'
    """
    if isinstance(validator, str):
        return VALIDATORS.resolve(validator)
    return type(validator).__name__


def needs_held_out(validator: str | Validator) -> bool:
    """Returns whether a validator needs source images that were held out of training.

    >>> needs_held_out("source_accuracy")
    True
    """
    return VALIDATORS.create(validator).needs_held_out


def check(validator: str | Validator, *, held_out: bool, reason: str) -> None:
    """Refuse a validator that does not exist, or that needs held-out images if there are none.

    `reason` says why there are none.
    """
    if needs_held_out(validator) and not held_out:
        others = ", ".join(name for name in names() if not needs_held_out(name))
        raise DialError(
            wanted=f"source images that are not trained on, which {name_of(validator)} judges by",
            got=reason,
            fix=f"give a larger --holdout or more images, or a validator without them: {others}",
        )


def score(validator: str | Validator, outputs: Outputs) -> float:
    """Returns the score of a run's outputs; higher is better.

    Raises:
        DialError: no such validator, or no held-out source for a validator that needs one.
        NoScoreError: the score is not finite.
    """
    check(validator, held_out=outputs.held_out is not None, reason="none in the run's outputs")
    value = float(VALIDATORS.create(validator).score(outputs.with_features()))
    if not math.isfinite(value):
        raise NoScoreError(
            wanted=f"outputs that {name_of(validator)} can judge",
            got=f"a score of {value}",
            fix="look at the run's losses; a lower --lr or --entropy keeps outputs finite",
        )
    return value


def score_in_parts(validator: str | Validator, outputs: Outputs) -> list[float]:
    """Returns the scores without each twentieth of the target images, for `as_good_as_the_best`."""
    return score_without_groups(lambda part: score(validator, part), outputs)
