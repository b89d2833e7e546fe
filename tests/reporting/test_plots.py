"""Pictures: sound SVG for any names, the same every time, their figures in words."""

import base64
from xml.etree import ElementTree

import numpy as np
import pytest

from dial.reporting import plots
from dial.reporting.drawing import Picture

ODD = ("<script>", "$x_{", "犬", "a\x1bb\udc80", "ö" * 200)


def parse(picture: Picture) -> list[str]:
    """The text in the light picture, after checking that both are XML."""
    trees = []
    for uri in (picture.light, picture.dark):
        kind, _, code = uri.partition(";base64,")
        assert kind == "data:image/svg+xml"
        trees.append(ElementTree.fromstring(base64.b64decode(code)))  # noqa: S314 - our own
    assert picture.light != picture.dark
    return [text for text in trees[0].itertext() if text.strip()]


def test_odd_names_are_drawn_as_they_are() -> None:
    counts = np.diag([3, 4, 0, 5, 6]) + 1
    texts = parse(plots.matrix(counts, ODD))
    assert {"<script>", "$x_{", "犬"} <= set(texts)
    assert "ö" * 21 + "…" in texts
    shares = np.full(5, 0.2)
    assert "<script>" in parse(plots.balance(ODD, source=shares, after=shares, before=None))


@pytest.mark.parametrize("count", [2, 31, 41, 300])
def test_any_number_of_classes(count: int) -> None:
    classes = tuple(f"class {i}" for i in range(count))
    counts = np.ones((count, count), np.int64)
    picture = plots.matrix(counts, classes)
    assert ("class 0" in parse(picture)) == (count <= plots.NAMED)
    assert f"{count} of {count**2} images lie on the diagonal" in picture.alt
    shares = np.full(count, 1 / count)
    parse(plots.balance(classes, source=shares, after=shares[::-1], before=shares))


def test_alternatives_have_the_figures() -> None:
    curve = plots.curves({"loss": [(1, 2.0), (2, 0.5)]}, title="Losses")
    assert curve.alt == "Losses: loss goes from 2 at epoch 1 to 0.5 at epoch 2."
    bars = plots.distances(["a", "b"], {"now": [0.1, 0.7]}, axis="means")
    assert "0.40 on average over 2 layers, largest at b with 0.70" in bars.alt
    points = np.zeros((3, 2), np.float32)
    embedded = plots.embedding(points, points, separation=0.25, title="")
    assert "Separation of the domains: 25%" in embedded.alt
    confused = plots.matrix(np.array([[5, 2], [0, 3]]), ("mug", "pen"))
    assert "8 of 10 images" in confused.alt
    assert "mug taken for pen (2 of 7)" in confused.alt


def test_many_layers_and_the_same_picture_twice() -> None:
    series = {"before": [0.2] * 69, "now": [0.0] * 69}
    names = [f"layer{i}" for i in range(69)]
    one, two = (plots.distances(names, series, axis="spread") for _ in range(2))
    assert one == two
    assert "layer0" not in parse(one)
