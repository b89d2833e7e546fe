"""Every image once and in order; files decoded on the fly for prediction, the bad ones told."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dial.data.decode import GoodImage, read_image
from dial.data.evaluation import EvaluationBatches, stream_files
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.transforms import Preprocessing, centre

from ..conftest import MakeImage

SMALL = Preprocessing(size=8, resize=10)


@pytest.mark.parametrize("by_content", [False, True])
def test_every_image_once_in_order(by_content: bool) -> None:
    array = np.random.default_rng(0).integers(0, 256, (21, 10, 10, 3), dtype=np.uint8)
    pixels = ArrayPixels(array, digests=array_digests(array))
    order = pixels.order if by_content else np.arange(21)
    expected = centre(array[order], preprocessing=SMALL)
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
    batches = list(stream_files(paths, preprocessing=SMALL, batch_size=3, quiet=True))
    good = [path for batch in batches for path in batch.paths]
    assert good == [paths[n] for n in (1, 2, 4, 5)]
    assert {path for batch in batches for path in batch.bad} == {paths[n] for n in (0, 3, 6)}
    images = [read_image(path, resize=10) for path in good]
    pixels = np.stack([image.pixels for image in images if isinstance(image, GoodImage)])
    found = torch.cat([batch.images for batch in batches])
    torch.testing.assert_close(found, centre(pixels, preprocessing=SMALL))


def test_stream_of_bad_files_only(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    (batch,) = stream_files([tmp_path / "a.jpg"], preprocessing=SMALL, quiet=True)
    assert batch.images.shape == (0, 3, 8, 8)
    assert list(batch.bad) == [tmp_path / "a.jpg"]
