"""Which images a report shows, and when two runs are about the same ones."""

from pathlib import Path

import numpy as np
import pytest

from dial.data.domain import ImageArray, ImageFiles
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.prepare import PreparedDomain
from dial.reporting import gathering
from dial.reporting.evidence import Cloud, View

from .pages import make_evidence


def view(predicted: list[int], confidence: list[float]) -> View:
    cloud = Cloud(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), 0.0)
    return View(np.array(predicted), np.array(confidence, np.float32), cloud, cloud)


def test_sure_changes_come_first_and_then_what_moved() -> None:
    before = view([0, 0, 0, 0], [0.9, 0.9, 0.5, 0.6])
    after = view([0, 1, 1, 0], [0.9, 0.8, 0.4, 0.9])
    assert gathering.most_changed(before, after).tolist() == [1, 2, 3, 0]


def domain(images: ImageFiles | ImageArray, side: int) -> PreparedDomain:
    generator = np.random.default_rng(0)
    array = generator.integers(0, 255, (len(images), side, side, 3), dtype=np.uint8)
    return PreparedDomain("d", images, ArrayPixels(array, digests=array_digests(array)), None)


@pytest.mark.parametrize(("side", "shown"), [(28, 28), (256, 96)])
def test_thumbnails_of_what_matters(side: int, shown: int) -> None:
    count = 500
    files = ImageFiles(tuple(Path(f"there/mug/{i}.jpg") for i in range(count)))
    found = make_evidence(images=count)
    assert found.before is not None
    views = [found.after, found.before]
    gallery = gathering._gallery(domain(files, side), views)
    first = gathering.most_changed(found.before, found.after)[: gathering.GALLERY]
    assert set(first) <= set(gallery.rows)
    assert len(gallery.rows) == len(gallery.names) == len(gallery.pictures) < count
    assert gallery.names[0] == f"mug/{gallery.rows[0]}.jpg"
    assert gallery.side == shown
    assert all(picture.startswith(b"\xff\xd8") for picture in gallery.pictures)


def test_fingerprints_follow_the_images_and_not_where_they_lie() -> None:
    here, moved, other = (
        gathering._fingerprint(domain(ImageFiles((Path(folder) / "mug" / name,)), 8))
        for folder, name in (("a", "1.png"), ("b/c", "1.png"), ("a", "2.png"))
    )
    assert here == moved != other
    assert gathering._fingerprint(domain(ImageFiles((Path("a/\udc80.png"),)), 8)) != here
