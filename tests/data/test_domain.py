"""Images by row, and labels: numbering, matching of the target's classes with the source's."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dial.data.decode import GoodImage
from dial.data.domain import (
    Domain,
    ImageArray,
    ImageFiles,
    LabelledDomain,
    Labels,
    as_source,
    merge,
    scoring_labels,
    share_classes,
    short_names,
)
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
    labels = scoring_labels(as_source(domain("bike", "mug", "pen")), domain("pen", "mug", "pen"))
    assert labels is not None
    assert labels.classes == ("bike", "mug", "pen")
    np.testing.assert_array_equal(labels.indices, [2, 1, 2])


def test_target_without_labels_is_normal() -> None:
    assert scoring_labels(as_source(domain("bike", "mug")), domain("", "")) is None


def test_classes_that_do_not_match_are_listed_with_the_way_on() -> None:
    message = r"1 that are not \(mugs\), while the target has no images of bike, mug; .*unlabelled"
    with pytest.raises(DialError, match=message):
        scoring_labels(as_source(domain("bike", "mug", "pen")), domain("mugs", "pen"))


def test_source_needs_labels() -> None:
    with pytest.raises(DialError, match=r"source with labels in somewhere.*images without classes"):
        as_source(domain("", ""))


def test_source_needs_two_classes() -> None:
    with pytest.raises(DialError, match=r"two classes or more .* got one, 'photos'"):
        as_source(domain("photos", "photos"))


def test_only_keeps_and_renames() -> None:
    kept = domain("laptop", "pen", "back_pack").only({"laptop": "computer", "back_pack": "bag"})
    assert kept.images == ImageFiles((Path("0.png"), Path("2.png")))
    assert kept.labels is not None
    assert kept.labels.counts == {"bag": 1, "computer": 1}


def test_only_needs_class_folders() -> None:
    array = ImageArray(np.zeros((1, 2, 2, 1), dtype=np.uint8), "digits")
    with pytest.raises(DialError, match="class folders in digits"):
        Domain("digits", array).only({"0": "zero"})


def test_a_labelled_domain_cannot_be_without_labels() -> None:
    source = as_source(domain("mug", "pen"))
    assert source == LabelledDomain("somewhere", source.images, source.labels)
    with pytest.raises(TypeError, match="labels"):
        LabelledDomain("somewhere", source.images)  # type: ignore[call-arg]
    bare = source.unlabelled()
    assert type(bare) is Domain
    assert bare.labels is None


def test_files_by_row() -> None:
    files = ImageFiles((Path("a/1.png"), Path("a/\udc80.png"), Path("a/1.png")))
    assert files.names == ["a/1.png", "a/\\x80.png", "a/1.png"]
    assert files.take(np.array([1])).paths == (Path("a/\udc80.png"),)
    assert files.distinct().paths == files.paths[:2]
    assert not files.like_digits


def test_arrays_by_row() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 1), dtype=np.uint8)
    array = ImageArray(pixels, "noise")
    assert array.names == ["noise/0", "noise/1", "noise/2"]
    np.testing.assert_array_equal(array.take([2, 0]).pixels, pixels[[2, 0]])
    assert array.distinct() is array
    assert array.like_digits
    assert not ImageArray(pixels.repeat(3, axis=3), "colour").like_digits
    assert not ImageArray(pixels.repeat(10, axis=1), "large").like_digits
    decoded = list(array.decode(resize=8, channels=3, title="", quiet=True))
    for row, image in enumerate(decoded):
        assert isinstance(image, GoodImage)
        assert (image.width, image.height) == (6, 4)
        assert image.digest == hashlib.blake2b(pixels[row].tobytes(), digest_size=16).digest()
        small = Image.fromarray(pixels[row, :, :, 0]).resize((8, 8), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(image.pixels, np.stack([np.asarray(small)] * 3, axis=2))


def test_fingerprints_follow_the_images_and_not_where_they_lie() -> None:
    here, moved, other = (
        ImageFiles((Path(folder) / "mug" / name,)).fingerprint
        for folder, name in (("a", "1.png"), ("b/c", "1.png"), ("a", "2.png"))
    )
    assert here == moved != other
    assert here == hashlib.blake2b(b"mug/1.png", digest_size=16).hexdigest()
    assert ImageFiles((Path("a/\udc80.png"),)).fingerprint != here
    array = ImageArray(np.zeros((7, 2, 2, 1), dtype=np.uint8), "digits:x")
    assert array.fingerprint == hashlib.blake2b(b"digits:x\n7", digest_size=16).hexdigest()


def test_sources_that_are_merged_are_one_domain() -> None:
    first, second = share_classes(
        [as_source(domain("cup", "pen")), as_source(domain("pen", "ant"))]
    )
    whole = merge([first, second])
    assert whole.name == "somewhere+somewhere"
    assert len(whole.images) == 4
    assert [whole.labels.classes[i] for i in whole.labels.indices] == ["cup", "pen", "pen", "ant"]
    assert whole.notes[0] == "somewhere: no images of ant, which other sources have"
    assert merge([first]) is first


def test_arrays_are_merged_with_arrays_of_the_same_shape() -> None:
    labels = Labels.from_names(["a", "b"])
    small, large = (np.full((2, side, side, 1), side, np.uint8) for side in (4, 6))
    parts = [LabelledDomain("x", ImageArray(p, "x"), labels) for p in (small, small + 1, large)]
    joined = merge(parts[:2]).images
    assert isinstance(joined, ImageArray)
    assert joined.pixels[:, 0, 0, 0].tolist() == [4, 4, 5, 5]
    message = "images of one kind to put together.*got an array, an array"
    with pytest.raises(DialError, match=message):
        merge([parts[0], parts[2]])
    files = as_source(domain("a", "b"))
    for mixed in ([files, parts[0]], [parts[0], files]):
        with pytest.raises(DialError, match="images of one kind to put together"):
            merge(mixed)


def test_short_names_are_different_and_fit_for_folders() -> None:
    names = [
        "trials",
        "office31:dslr",
        "/data/dslr/",
        "C:\\x\\new photos",
        "..",
        "digits:mnist",
        "b/dslr",
    ]
    domains = [Domain(name, ImageFiles(())) for name in names]
    assert short_names(domains) == [
        "trials-2",
        "dslr",
        "dslr-2",
        "new_photos",
        "domain",
        "mnist",
        "dslr-3",
    ]
