"""Every image once and in order; images decoded on the fly for prediction, bad ones reported."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dial.data.decode import GoodImage, read_image
from dial.data.domain import ImageArray, ImageFiles
from dial.data.evaluation import EvaluationBatches, stream_images
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.transforms import Preprocessing, center

from ..conftest import MakeImage

SMALL = Preprocessing(size=8, resize=10)


@pytest.mark.parametrize("by_content", [False, True])
def test_every_image_once_in_order(by_content: bool) -> None:
    array = np.random.default_rng(0).integers(0, 256, (21, 10, 10, 3), dtype=np.uint8)
    pixels = ArrayPixels(array, digests=array_digests(array))
    order = pixels.order if by_content else np.arange(21)
    expected = center(array[order], preprocessing=SMALL)
    whole = EvaluationBatches(pixels, preprocessing=SMALL, batch_size=8, by_content=by_content)
    assert len(whole) == 3
    for _ in range(2):
        assert [len(batch) for batch in whole] == [8, 8, 5]
        assert torch.equal(torch.cat(list(whole)), expected)
    shares = [
        EvaluationBatches(
            pixels,
            preprocessing=SMALL,
            batch_size=4,
            by_content=by_content,
            rank=rank,
            world_size=2,
        )
        for rank in (0, 1)
    ]
    assert torch.equal(torch.cat([batch for share in shares for batch in share]), expected)
    assert [*shares[0].rows, *shares[1].rows] == order.tolist()


def test_stream_gives_good_files_in_order_and_tells_the_bad(
    tmp_path: Path, make_image: MakeImage
) -> None:
    paths = [make_image(tmp_path / f"{n}.png", seed=n) for n in range(7)]
    for bad in (0, 3, 6):
        paths[bad].write_bytes(b"")
    files = ImageFiles((*paths, paths[1]))  # one of them twice, which is read once
    batches = list(stream_images(files, preprocessing=SMALL, batch_size=3, quiet=True))
    good = [Path(name) for batch in batches for name in batch.names]
    assert good == [paths[n] for n in (1, 2, 4, 5)]
    names = {name for batch in batches for name in batch.bad}
    assert names == {str(paths[n]) for n in (0, 3, 6)}
    images = [read_image(path, resize=10) for path in good]
    pixels = np.stack([image.pixels for image in images if isinstance(image, GoodImage)])
    found = torch.cat([batch.images for batch in batches])
    torch.testing.assert_close(found, center(pixels, preprocessing=SMALL))


def test_stream_of_bad_files_only(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    files = ImageFiles((tmp_path / "a.jpg",))
    (batch,) = stream_images(files, preprocessing=SMALL, quiet=True)
    assert batch.images.shape == (0, 3, 8, 8)
    assert list(batch.bad) == [str(tmp_path / "a.jpg")]


def test_stream_of_an_array() -> None:
    array = np.random.default_rng(0).integers(0, 256, (5, 10, 10, 3), dtype=np.uint8)
    images = ImageArray(array, "noise")
    batches = list(stream_images(images, preprocessing=SMALL, batch_size=2, quiet=True))
    assert [batch.names for batch in batches] == [
        ["noise/0", "noise/1"], ["noise/2", "noise/3"], ["noise/4"],
    ]  # fmt: skip
    tensors = torch.cat([batch.images for batch in batches])
    assert torch.equal(tensors, center(array, preprocessing=SMALL))
