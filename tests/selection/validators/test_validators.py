"""What holds for every validator: names, objects, collapsed outputs, and wrong use."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dial import DialError
from dial.selection import validators
from dial.selection.outputs import Outputs
from dial.selection.validators import Validator

from .small import make


@pytest.mark.parametrize("name", validators.names())
def test_contract(name: str) -> None:
    outputs = make()
    value = validators.score(name, outputs)
    assert math.isfinite(value)
    assert value == validators.score(name, outputs)
    one = outputs.target.logits.copy()
    one[:, 2] += 1000  # collapsed, and far from where an exponential overflows
    collapsed = replace(outputs, target=replace(outputs.target, logits=one))
    assert math.isfinite(validators.score(name, collapsed))
    bare = replace(outputs, held_out=None)
    if validators.needs_held_out(name):
        with pytest.raises(DialError, match=f"which {name} judges by, got none in the run's"):
            validators.score(name, bare)
    else:
        assert validators.score(name, bare) == value


def test_wrong_use() -> None:
    outputs = make()
    with pytest.raises(DialError, match=r"one of the validators .*, got 'magic'"):
        validators.score("magic", outputs)
    logits = np.full_like(outputs.target.logits, np.nan)
    broken = replace(outputs, target=replace(outputs.target, logits=logits))
    with pytest.raises(DialError, match="outputs that information_maximization can judge, got a"):
        validators.score("information_maximization", broken)


class Confidence(Validator):
    """The mean of the largest logits."""

    def score(self, outputs: Outputs) -> float:
        assert len(outputs.target.logits) == len(outputs.target.features)
        return float(outputs.target.logits.max(1).mean())


def test_an_object_takes_the_place_of_a_name() -> None:
    outputs = make()
    expected = sum(max(row) for row in outputs.target.logits.tolist()) / 70
    assert validators.score(Confidence(), outputs) == pytest.approx(expected)
    assert validators.name_of(Confidence()) == "Confidence"
    assert not validators.needs_held_out(Confidence())
    with pytest.raises(DialError, match=r"an object with the methods of .*Validator"):
        validators.score(object(), outputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*validators.names(), Confidence()])
def test_images_without_features_do_not_count(name: str | Validator) -> None:
    outputs = make()
    more = np.concatenate([outputs.target.logits, np.ones((5, 4), np.float32)])
    longer = replace(outputs, target=replace(outputs.target, logits=more))
    assert validators.score(name, longer) == validators.score(name, outputs)


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("information_maximisation", "information_maximization"),
        ("soft_neighbourhood_density", "soft_neighborhood_density"),
    ],
)
def test_former_names_work_with_a_warning(former: str, name: str) -> None:
    with pytest.warns(FutureWarning, match=f"{former} is now called {name}"):
        assert validators.score(former, make()) == validators.score(name, make())
    assert former not in validators.names()
