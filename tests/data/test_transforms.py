"""Transforms against torchvision's: crops, flips, scaling, normalisation."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform
from torchvision.transforms.v2 import functional as F

from dial.data.transforms import Augmentation, Preprocessing, augment, center
from dial.errors import DialError

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
SMALL = Preprocessing(size=12, resize=16, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))


def channels_first(images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def normalised(images: torch.Tensor) -> torch.Tensor:
    scaled = F.to_dtype(images, torch.float32, scale=True)
    result: torch.Tensor = F.normalize(scaled, list(SMALL.mean), list(SMALL.std))
    return result


def test_crop_and_flip_are_each_images_own_and_those_of_torchvision() -> None:
    top, left = np.array([0, 4, 2, 1, 3]), np.array([4, 0, 1, 2, 3])
    flip = np.array([True, False, True, False, True])
    expected = []
    for image, y, x, mirrored in zip(channels_first(IMAGES), top, left, flip, strict=True):
        crop = F.crop(image, int(y), int(x), 12, 12)
        expected.append(F.horizontal_flip(crop) if mirrored else crop)
    unused = np.full((5, 2, 2), np.nan)
    batch = augment(IMAGES, Augmentation(top, left, flip, unused), preprocessing=SMALL)
    torch.testing.assert_close(batch, normalised(torch.stack(expected)))
    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("size", [16, 13, 12, 11])
def test_centre_crop_is_that_of_torchvision(size: int) -> None:
    preprocessing = dataclasses.replace(SMALL, size=size)
    batch = center(IMAGES, preprocessing=preprocessing)
    expected = normalised(F.center_crop(channels_first(IMAGES), [size, size]))
    torch.testing.assert_close(batch, expected)
    assert batch.is_contiguous(memory_format=torch.channels_last)


def test_each_image_is_mapped_as_scipy_maps_it() -> None:
    nothing, same = np.zeros(5, dtype=np.int64), np.zeros(5, dtype=np.bool_)
    maps = np.eye(2) + np.random.default_rng(1).normal(scale=0.2, size=(5, 2, 2))
    distorted = dataclasses.replace(SMALL, size=16, distort=0.2)
    drawn = Augmentation(nothing, nothing, same, maps)
    batch = augment(IMAGES, drawn, preprocessing=distorted)
    middle = np.full(2, 7.5)
    expected = np.empty((5, 3, 16, 16))
    for image, linear, channels in zip(channels_first(IMAGES).numpy(), maps, expected, strict=True):
        rows_first = linear[::-1, ::-1]  # torch's places are (x, y), scipy's (row, column)
        offset = middle - rows_first @ middle
        for k in range(3):
            pixels, place = image[k] / 255, {"offset": offset, "mode": "nearest"}
            channels[k] = affine_transform(pixels, rows_first, order=1, **place)
    mean, std = (np.array(values).reshape(3, 1, 1) for values in (SMALL.mean, SMALL.std))
    np.testing.assert_allclose(batch.numpy(), (expected - mean) / std, atol=1e-4)


def test_maps_vary_as_much_as_was_asked_for_and_not_without() -> None:
    random = np.random.default_rng(0)
    drawn = Augmentation.draw(dataclasses.replace(SMALL, distort=0.1), 4000, random=random)
    np.testing.assert_allclose(drawn.maps.mean(axis=0), np.eye(2), atol=0.01)
    np.testing.assert_allclose(drawn.maps.std(axis=0), 0.1, atol=0.01)
    assert (Augmentation.draw(SMALL, 3, random=random).maps == np.eye(2)).all()


def test_distortion_changes_no_crop_and_no_flip() -> None:
    plain, distorted = (
        Augmentation.draw(preprocessing, 50, random=np.random.default_rng(3))
        for preprocessing in (SMALL, dataclasses.replace(SMALL, distort=0.1))
    )
    for before, after in zip(plain[:3], distorted[:3], strict=True):
        np.testing.assert_array_equal(before, after)


def test_choices_reach_every_crop_and_both_flips() -> None:
    drawn = Augmentation.draw(SMALL, 500, random=np.random.default_rng(0))
    assert set(drawn.top) == set(drawn.left) == set(range(5))
    assert 200 < drawn.flip.sum() < 300
    assert len({*zip(drawn.top, drawn.left, drawn.flip, strict=True)}) == 50


def test_digits_are_neither_moved_nor_flipped() -> None:
    digits = Preprocessing.for_digits()
    drawn = Augmentation.draw(digits, 100, random=np.random.default_rng(0))
    assert not drawn.top.any()
    assert not drawn.left.any()
    assert not drawn.flip.any()
    image = np.array([0, 255], dtype=np.uint8).repeat(392).reshape(1, 28, 28, 1)
    assert {*center(image, preprocessing=digits).flatten().tolist()} == {0, 1}


def test_the_input_of_a_network() -> None:
    gray = SimpleNamespace(image_size=28, crop_ratio=1.0, distort=0.0, mean=(0.0,), std=(1.0,))
    assert Preprocessing.for_network(gray, None) == Preprocessing.for_digits()
    normal = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    rgb = SimpleNamespace(image_size=224, crop_ratio=0.875, distort=0.1, **normal)
    assert Preprocessing.for_network(rgb, None) == Preprocessing(distort=0.1, **normal)
    other = Preprocessing(size=140, resize=160, distort=0.1, **normal)
    assert Preprocessing.for_network(rgb, 140) == other


def test_images_are_not_written_to() -> None:
    before = IMAGES.copy()
    center(IMAGES, preprocessing=Preprocessing(size=16, resize=16))
    np.testing.assert_array_equal(IMAGES, before)


@pytest.mark.parametrize(("size", "resize"), [(224, 256), (160, 183), (128, 146)])
def test_resize_keeps_the_papers_proportion(size: int, resize: int) -> None:
    assert Preprocessing(size=size).resize == resize


def test_saved_and_restored_through_json() -> None:
    assert Preprocessing(**json.loads(json.dumps(SMALL.to_dict()))) == SMALL


def test_size_above_the_resized_image() -> None:
    with pytest.raises(DialError, match="size=300, resize=256"):
        Preprocessing(size=300, resize=256)


def test_statistics_for_every_channel() -> None:
    with pytest.raises(
        DialError,
        match="one channel or three, with a finite mean and a positive dev",
    ):
        Preprocessing(channels=1)
