"""Density against loops, in parts, and with too few images."""

import math
from dataclasses import replace

import pytest

from dial import DialError
from dial.selection import validators
from dial.selection.outputs import Observation

from .small import entropy, make, probabilities


def test_soft_neighborhood_density() -> None:
    outputs = make()
    rows = probabilities(outputs.target.logits)
    units = [[p / math.sqrt(sum(q * q for q in row)) for p in row] for row in rows]
    total = 0.0
    for i, one in enumerate(units):
        near = [
            math.exp(sum(a * b for a, b in zip(one, other, strict=True)) / 0.05)
            for j, other in enumerate(units)
            if j != i
        ]
        total += entropy([value / sum(near) for value in near])
    found = validators.score("soft_neighborhood_density", outputs)
    assert found == pytest.approx(total / len(units))


def test_density_in_parts_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = validators.score("soft_neighborhood_density", make())
    monkeypatch.setattr("dial.selection.validators.soft_neighborhood_density._ROWS", 7)
    assert validators.score("soft_neighborhood_density", make()) == pytest.approx(whole)


def test_a_single_image_is_refused() -> None:
    outputs = make()
    alone = Observation(outputs.target.logits[:1], outputs.target.features[:1])
    with pytest.raises(DialError, match="two target images or more, got 1"):
        validators.score("soft_neighborhood_density", replace(outputs, target=alone))
