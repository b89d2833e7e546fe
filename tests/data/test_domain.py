"""Labels: numbering, matching of the target's classes with the source's."""

from pathlib import Path

import numpy as np
import pytest

from dial.data.domain import Domain, ImageArray, ImageFiles, Labels, require_labels, scoring_labels
from dial.errors import DialError


def domain(*names: str) -> Domain:
    files = ImageFiles(tuple(Path(f"{i}.png") for i in range(len(names))))
    return Domain("somewhere", files, Labels.from_names(names) if all(names) else None)


def test_numbers_sort_by_value_and_names_by_spelling() -> None:
    assert Labels.from_names(["2", "10", "1"]).classes == ("1", "2", "10")
    assert Labels.from_names(["b", "10", "a"]).classes == ("10", "a", "b")


def test_one_letter_in_two_spellings_is_one_class() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    labels = Labels.from_names([composed, decomposed])
    assert labels.counts == {composed: 2}


def test_target_with_some_of_the_classes_is_scored_in_the_sources_numbering() -> None:
    labels = scoring_labels(domain("bike", "mug", "pen"), domain("pen", "mug", "pen"))
    assert labels is not None
    assert labels.classes == ("bike", "mug", "pen")
    np.testing.assert_array_equal(labels.indices, [2, 1, 2])


def test_target_without_labels_is_normal() -> None:
    assert scoring_labels(domain("bike", "mug"), domain("", "")) is None


def test_classes_that_do_not_match_are_listed_with_the_way_on() -> None:
    message = r"1 that are not \(mugs\), while the target has no images of bike, mug; .*unlabelled"
    with pytest.raises(DialError, match=message):
        scoring_labels(domain("bike", "mug", "pen"), domain("mugs", "pen"))


def test_source_needs_labels() -> None:
    with pytest.raises(DialError, match=r"source with labels in somewhere.*images without classes"):
        require_labels(domain("", ""))


def test_source_needs_two_classes() -> None:
    with pytest.raises(DialError, match=r"two classes or more .* got one, 'photos'"):
        require_labels(domain("photos", "photos"))


def test_only_keeps_and_renames() -> None:
    kept = domain("laptop", "pen", "back_pack").only({"laptop": "computer", "back_pack": "bag"})
    assert kept.images == ImageFiles((Path("0.png"), Path("2.png")))
    assert kept.labels is not None
    assert kept.labels.counts == {"bag": 1, "computer": 1}


def test_only_needs_class_folders() -> None:
    array = ImageArray(np.zeros((1, 2, 2, 1), dtype=np.uint8))
    with pytest.raises(DialError, match="class folders in digits"):
        Domain("digits", array).only({"0": "zero"})
