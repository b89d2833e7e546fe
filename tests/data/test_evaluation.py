"""Files decoded on the fly for prediction, the bad ones told."""

from pathlib import Path

import numpy as np
import torch

from dial.data.decode import GoodImage, read_image
from dial.data.evaluation import stream_files
from dial.data.transforms import Preprocessing, centre

from ..conftest import MakeImage

SMALL = Preprocessing(size=8, resize=10)


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
