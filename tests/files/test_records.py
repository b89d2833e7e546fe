"""Values from JSON and arrays against the types and shapes that the code declares."""

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np
import pytest

from dial.files.records import parse_json, require_arrays, require_type


@dataclass
class Point:
    x: float
    y: float = 0.0


class Line(TypedDict):
    name: str
    ends: NotRequired[tuple[float, float] | None]
    points: NotRequired[list[Point]]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "a"},
        {"name": "a", "ends": None, "more": "of later versions"},
        {"name": "", "ends": [0, 0.5], "points": [{"x": 1}, {"x": 1, "y": 2.5}]},
    ],
)
def test_values_of_the_type(value: Any) -> None:
    require_type(value, Line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the file is a list in place of an object"),
        ("{}", "the file has no name"),
        ('{"name": 1}', "name is 1, not str"),
        ('{"name": "a", "ends": [1]}', "ends has 1 values, not 2"),
        ('{"name": "a", "ends": [1, NaN]}', "an entry of ends is nan, not float"),
        ('{"name": "a", "ends": [1, 1e999]}', "an entry of ends is inf, not float"),
        ('{"name": "a", "ends": [true, 1]}', "an entry of ends is True, not float"),
        ('{"name": "a", "points": [{"y": 1}]}', "an entry of points has no x"),
        ('{"name": "a", "points": [{"x": 1, "z": 1}]}', "has 'z', which is not known"),
        ('{"name": "a", "points": [{"x": 99999999999999999999}]}', "x is 9+, not float"),
        ("[" * 100_000, "nested too deep"),
        ('{"name": ' + "9" * 5000 + "}", "digits"),
        (b"\xff", "can't decode byte"),
    ],
)
def test_values_of_another_type(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text, Line)


def test_arrays_agree_about_their_axes() -> None:
    sizes = {"K": 3}
    arrays: dict[str, Any] = {"logits": np.zeros((4, 3)), "labels": np.array([0, 1, 2, 2])}
    shapes = {"logits": "NK float", "labels": "N K", "more": "N int"}
    require_arrays(arrays | {"more": None}, shapes, sizes)
    assert sizes == {"K": 3, "N": 4}
    for name, array, message in (
        ("logits", np.zeros((4, 2)), r"logits has the shape \(4, 2\)"),
        ("logits", np.zeros(4), r"logits has the shape \(4,\)"),
        ("logits", np.zeros((4, 3), int), "logits has no fractions"),
        ("labels", np.zeros(4), "labels has no whole numbers"),
        ("labels", np.array([0, 1, 2, 3]), "labels has numbers that stand for none of 3"),
        ("labels", np.array([0, 1, 2, -1]), "labels has numbers that stand for none of 3"),
    ):
        with pytest.raises(ValueError, match=message):
            require_arrays({name: array}, shapes, dict(sizes))
