"""The part of the source that is held out: how much, of what, and what decides it."""

import numpy as np
import pytest

from dial.data.domain import ImageArray, Labels
from dial.data.holdout import MIN_HELD_OUT, hold_out, sample
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.prepare import PreparedSource


def domain(counts: dict[str, int], *, order: np.ndarray | None = None) -> PreparedSource:
    """Images of noise with so many of each class; `order` shuffles their rows."""
    names = [name for name, count in counts.items() for _ in range(count)]
    array = np.random.default_rng(0).integers(0, 256, (len(names), 4, 4, 1), dtype=np.uint8)
    order = np.arange(len(names)) if order is None else order
    array, names = array[order], [names[i] for i in order]
    pixels = ArrayPixels(array, digests=array_digests(array))
    return PreparedSource("noise", ImageArray(array, "noise"), pixels, Labels.from_names(names))


def contents(some: PreparedSource) -> set[tuple[bytes, str]]:
    names = [some.labels.classes[i] for i in some.labels.indices]
    images = some.pixels.read(np.arange(len(some.pixels)))
    return {(image.tobytes(), name) for image, name in zip(images, names, strict=True)}


@pytest.mark.parametrize("share", [0.29, 0.5])
def test_each_class_gives_its_share_and_no_image_is_lost(share: float) -> None:
    whole = domain({"a": 100, "b": 57, "c": 1})
    kept, held = hold_out(whole, share, seed=3)
    assert held is not None
    expected = {"a": 29, "b": 16, "c": 0} if share == 0.29 else {"a": 50, "b": 28, "c": 0}
    assert held.labels.counts == expected
    assert not contents(kept) & contents(held)
    assert contents(kept) | contents(held) == contents(whole)
    for part in (kept, held):  # images, pixels and labels are still of the same rows
        assert isinstance(part.images, ImageArray)
        rows = np.arange(len(part.pixels))
        np.testing.assert_array_equal(part.images.pixels, part.pixels.read(rows))
        digests = array_digests(part.pixels.read(part.pixels.order))
        assert [d.tobytes() for d in digests] == sorted(d.tobytes() for d in digests)


def test_content_and_seed_decide_and_rows_do_not() -> None:
    counts = {"a": 200, "b": 150}
    shuffled = np.random.default_rng(1).permutation(350)
    first, again, other = (
        hold_out(domain(counts, order=order), 0.2, seed=seed)[1]
        for order, seed in ((None, 0), (shuffled, 0), (None, 1))
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert contents(first) == contents(again)
    assert contents(first) != contents(other)


def test_a_small_source_keeps_all_its_images() -> None:
    whole = domain({"a": 10 * MIN_HELD_OUT - 1, "b": 1})
    assert hold_out(whole, 0.1, seed=0) == (whole, None)
    assert hold_out(domain({"a": 10 * MIN_HELD_OUT, "b": 1}), 0.1, seed=0)[1] is not None
    assert hold_out(domain({"a": 10 * MIN_HELD_OUT, "b": 1}), 0.0, seed=0)[1] is None


def test_a_sample_is_as_even_as_the_classes_allow_and_content_decides_it() -> None:
    counts = {"a": 100, "b": 3, "c": 20, "d": 1}
    whole = domain(counts)
    assert sample(whole, 124) is whole
    some = sample(whole, 24)
    assert some.labels.counts == {"a": 10, "b": 3, "c": 10, "d": 1}
    assert contents(some) < contents(whole)
    shuffled = domain(counts, order=np.random.default_rng(1).permutation(124))
    assert contents(sample(shuffled, 24)) == contents(some)
    few = sample(whole, 2)
    assert set(few.labels.counts.values()) == {1}
