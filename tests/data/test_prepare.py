"""Domains made ready: bad files all at once, labels aligned, rows that only content orders."""

import re
from pathlib import Path

import numpy as np
import pytest

from dial.data.domain import Domain, ImageArray, ImageFiles, Labels
from dial.data.folders import read_folder
from dial.data.pixels import ArrayPixels, FilePixels
from dial.data.prepare import (
    PreparedDomain,
    PreparedSource,
    prepare,
    prepare_pair,
    require_every_class,
)
from dial.errors import DialError

from ..conftest import MakeFolder, MakeImage
from .test_decode import broken_files


@pytest.fixture
def domain(make_folder: MakeFolder) -> Domain:
    return read_folder(make_folder("amazon", {"mug": 3, "pen": 4}))


def one(domain: Domain, cache: Path, *, use_cache: bool = True) -> PreparedDomain:
    return prepare([domain], resize=8, cache_dir=cache, use_cache=use_cache, quiet=True)[0]


def test_cached_and_decoded_rows_are_the_same(domain: Domain, tmp_path: Path) -> None:
    cached, decoded = (one(domain, tmp_path / "c", use_cache=use) for use in (True, False))
    assert isinstance(cached.pixels, ArrayPixels)
    assert isinstance(decoded.pixels, FilePixels)
    rows = np.array([5, 0, 5])
    np.testing.assert_array_equal(cached.pixels.read(rows), decoded.pixels.read(rows))
    np.testing.assert_array_equal(cached.pixels.order, decoded.pixels.order)
    assert len(cached.pixels) == len(decoded.pixels) == 7


def test_without_cache_nothing_is_written(domain: Domain, tmp_path: Path) -> None:
    one(domain, tmp_path / "c", use_cache=False)
    assert not (tmp_path / "c").exists()


def test_order_follows_from_content_alone(
    tmp_path: Path, make_folder: MakeFolder, make_image: MakeImage
) -> None:
    """The same images in class folders, in other folders, in one folder: the same sequence."""
    sorted_out = make_folder("sorted", {"mug": 3, "pen": 4})
    images = sorted(sorted_out.rglob("*.png"))
    for number, image in enumerate(images):
        for copy in (f"shuffled/{number * 5 % 3}/{number}.png", f"flat/{7 - number}.png"):
            (tmp_path / copy).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / copy).write_bytes(image.read_bytes())
    roots = [sorted_out, tmp_path / "shuffled", tmp_path / "flat"]
    pixels = [one(read_folder(root), tmp_path / "c").pixels for root in roots]
    sequences = [found.read(found.order) for found in pixels]
    np.testing.assert_array_equal(sequences[0], sequences[1])
    np.testing.assert_array_equal(sequences[0], sequences[2])


def test_all_bad_files_of_all_domains_in_one_message_and_the_good_ones_load(
    tmp_path: Path,
    make_folder: MakeFolder,
    make_image: MakeImage,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = make_folder("source", {"mug": 2, "pen": 2})
    target = make_folder("target", {"mug": 1, "pen": 1})
    names = broken_files(source / "mug", make_image)
    assert len(names) >= 12
    (target / "pen" / "empty.jpg").touch()
    domains = [read_folder(source), read_folder(target)]
    with pytest.raises(DialError, match=rf"\(20 files\), got {len(names) + 1} bad") as raised:
        prepare(domains, resize=8, cache_dir=tmp_path / "c", quiet=True)
    message = str(raised.value)
    assert all(str(source / "mug" / name) + ": " in message for name in names)
    assert str(target / "pen" / "empty.jpg") in message

    ready = prepare(domains, resize=8, cache_dir=tmp_path / "c", quiet=True, skip_bad=True)
    assert [len(domain.pixels) for domain in ready] == [4, 2]
    assert ready[0].labels is not None
    assert ready[0].labels.indices.tolist() == [0, 0, 1, 1]
    told = capsys.readouterr().err
    assert told.startswith(f"dial: going on without {len(names) + 1} bad")
    assert all(name in told for name in names)


def test_labels_stay_with_their_images_when_bad_ones_go(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    root = make_folder("amazon", {"mug": 3, "pen": 4})
    (root / "mug" / "001.png").write_bytes(b"")
    domain = read_folder(root)
    (found,) = prepare([domain], resize=8, cache_dir=tmp_path / "c", quiet=True, skip_bad=True)
    assert found.labels is not None
    assert isinstance(found.images, ImageFiles)
    names = [found.labels.classes[index] for index in found.labels.indices]
    assert [path.parent.name for path in found.images.paths] == names
    assert len(names) == 6


def test_domain_with_bad_files_only(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.jpg").touch()
    domain = read_folder(tmp_path / "a")
    with pytest.raises(
        DialError, match=re.escape(f"wanted an image that can be read in {domain.name}")
    ):
        prepare([domain], resize=8, use_cache=False, quiet=True, skip_bad=True)


def test_file_that_vanishes_during_the_run(domain: Domain, tmp_path: Path) -> None:
    pixels = one(domain, tmp_path, use_cache=False).pixels
    (tmp_path / "amazon" / "mug" / "000.png").unlink()
    with pytest.raises(
        DialError, match=r"1 cannot be read: No such file or directory;.*\n.*000.png"
    ):
        pixels.read(np.array([0]))


def test_embedded_images_are_brought_to_size() -> None:
    array = np.arange(2 * 16, dtype=np.uint8).reshape(2, 4, 4, 1)
    domain = Domain("digits", ImageArray(array, "digits"), Labels.from_names(["0", "1"]))
    (same,) = prepare([domain], resize=4, channels=1)
    (other,) = prepare([domain], resize=8, channels=3)
    np.testing.assert_array_equal(same.pixels.read(np.array([1, 0])), array[[1, 0]])
    read = other.pixels.read(np.array([0]))
    assert read.shape == (1, 8, 8, 3)
    np.testing.assert_array_equal(read[..., 0], read[..., 2])


def test_a_source_needs_an_image_of_every_class(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder("amazon", {"mug": 1, "pen": 2})
    whole = one(read_folder(root), tmp_path)
    (source,) = require_every_class([whole])
    assert isinstance(source, PreparedSource)
    assert (source.pixels, source.labels) == (whole.pixels, whole.labels)
    with pytest.raises(DialError, match=r"source .*amazon, got images without classes"):
        require_every_class([one(read_folder(root).unlabelled(), tmp_path)])
    (root / "mug" / "000.png").write_bytes(b"")
    rest = prepare([read_folder(root)], resize=8, cache_dir=tmp_path, quiet=True, skip_bad=True)
    with pytest.raises(DialError, match=r"of every class of the source .*amazon, got none of mug"):
        require_every_class(rest[:1])


def test_a_pair_is_a_source_and_a_target_of_several_images(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    first = read_folder(make_folder("amazon", {"mug": 1, "pen": 2}))
    settings = {"resize": 8, "cache_dir": tmp_path / "c", "quiet": True}
    source, target = prepare_pair(first, read_folder(make_folder("flat", {".": 2})), **settings)
    assert isinstance(source, PreparedSource)
    assert (len(source.pixels), len(target.pixels)) == (3, 2)
    with pytest.raises(DialError, match="a target of 2 or more images, got 1; fix: add images"):
        prepare_pair(first, read_folder(make_folder("single", {".": 1})), **settings)
    with pytest.raises(DialError, match=r"source .*flat, got images without classes"):
        prepare_pair(Domain("flat", target.images), first, **settings)
