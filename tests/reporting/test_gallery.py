"""Galleries: which images come first, and which the run keeps thumbnails of."""

import numpy as np
import pytest

from dial.reporting import gallery

from .pages import make_domain, make_record, number


def test_confident_changes_come_first_and_then_changes_of_confidence() -> None:
    predicted = {"before": np.array([0, 0, 0, 0]), "after": np.array([0, 1, 1, 0])}
    confidence = {"before": np.array([0.9, 0.9, 0.5, 0.6]), "after": np.array([0.9, 0.8, 0.4, 0.9])}
    assert gallery.by_change(predicted, confidence).tolist() == [1, 2, 3, 0]


def test_the_smallest_margin_is_the_least_certain() -> None:
    first, second = np.array([0.9, 0.5, 0.4, 0.5]), np.array([0.1, 0.45, 0.2, 0.45])
    assert gallery.by_certainty(first, second).tolist() == [1, 3, 2, 0]
    assert gallery.by_certainty(first, None).tolist() == [2, 1, 3, 0]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("side", "shown"), [(28, 28), (256, 96)])
def test_thumbnails_of_what_matters(side: int, shown: int, before: bool) -> None:
    count = 500
    record = make_record(images=count, before=before)
    first, second = record.confidence["after"], record.runner_up_confidence
    assert second is not None
    domain = make_domain(number(count), side)
    kept = gallery.keep(domain, record.predicted, record.confidence, second)
    names, pictures = kept["gallery_names"], kept["gallery_pictures"]
    wanted = sorted(range(count), key=lambda row: first[row] - second[row])[:36]
    if before:
        wanted += gallery.by_change(record.predicted, record.confidence)[:36].tolist()
    assert {str(row) for row in wanted} <= set(names)
    assert names.keys() == pictures.keys()
    assert 300 <= len(names) <= 300 + len(wanted)
    assert all(name == f"mug/{row}.jpg" for row, name in names.items())
    assert kept["gallery_side"] == shown
    assert all(picture.tobytes().startswith(b"\xff\xd8") for picture in pictures.values())
