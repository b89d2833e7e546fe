"""Target images whose labels were given: tables of labels, and who may be scored."""

from pathlib import Path

import numpy as np
import pytest

from dial import DialError, Run
from dial.data.batches import Batches
from dial.data.datasets import open_domain
from dial.data.domain import Domain, as_labelled
from dial.data.folders import read_list
from dial.data.prepare import PreparedTarget, prepare_domains
from dial.data.transforms import Preprocessing
from tests.conftest import Call, MakeFolder, MakeImage, refused

CLASSES = {"mug": 4, "pen": 3}
PREPROCESSING = Preprocessing(size=16, resize=18)


def prepared(source: Path, target: Path, labelled: Domain, cache: Path) -> PreparedTarget:
    opened = as_labelled(labelled, ("mug", "pen"))
    _, (found,) = prepare_domains(
        [open_domain(source)],
        [open_domain(target)],
        labelled=opened,
        resize=18,
        cache_dir=cache,
        quiet=True,
    )
    return found


def test_a_table_with_a_header_is_a_list(tmp_path: Path, make_image: MakeImage) -> None:
    for name in ("a, b.png", "c.png"):
        make_image(tmp_path / name)
    table = tmp_path / "labels.csv"
    table.write_text('label,path,confidence\nmug,"a, b.png",0.9\n\npen,c.png,0.8\n')
    domain = read_list(table)
    assert domain.images.names == [str(tmp_path / "a, b.png"), str(tmp_path / "c.png")]
    assert domain.labels is not None
    assert domain.labels.classes == ("mug", "pen")
    table.write_text("path\nc.png\n")
    assert read_list(table).labels is None


def test_predictions_are_no_labels(
    finished: Run, folders: tuple[Path, Path], call: Call, tmp_path: Path
) -> None:
    """Scored by themselves they would all be right."""
    table = tmp_path / "predictions.csv"
    assert call("predict", finished.folder, folders[1], "--out", table, "-q").code == 0
    told = call("evaluate", finished.folder, table)
    refused(told, "images without classes; its labels are predictions")
    told = call("predict", finished.folder, table, "-q")
    assert told.code == 0
    assert told.out.splitlines()[1:] == table.read_text().splitlines()[1:]
    table.write_text(table.read_text().replace(",confidence", ",before"))
    assert "100.0%" in call("evaluate", finished.folder, table, "-q").out


def test_a_table_may_be_relative_to_the_current_folder(
    tmp_path: Path, make_image: MakeImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_image(tmp_path / "images" / "a.png")
    (tmp_path / "far" / "away").mkdir(parents=True)
    table = tmp_path / "far" / "away" / "labels.csv"
    table.write_text("path,label\nimages/a.png,mug\n")
    monkeypatch.chdir(tmp_path)
    assert [path.exists() for path in read_list(table).images.paths] == [True]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n", "none after line 1"),
        ("path,label\na.png,mug\nb.png\n", "cells in line 3"),
        ("path,label\na.png,mug\nb.png,\n", "line 3"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(text)
    with pytest.raises(DialError, match=message):
        read_list(table)


def test_copies_by_content_leave_the_target_and_are_not_scored(
    tmp_path: Path, make_folder: MakeFolder, make_image: MakeImage
) -> None:
    source, target = make_folder("source", CLASSES), make_folder("target", CLASSES, seed=50_000)
    copies = tmp_path / "labelled" / "pen"
    copies.mkdir(parents=True)
    for number, path in enumerate(sorted(target.rglob("*.png"))[:2]):
        (copies / f"{number}.png").write_bytes(path.read_bytes())
    make_image(copies / "new.png", seed=99)
    found = prepared(source, target, open_domain(tmp_path / "labelled"), tmp_path / "cache")
    assert found.known is not None
    assert (found.known >= 0).tolist() == [False] * 5 + [True] * 3
    assert len(found.pixels) == len(found.images) == 8
    assert found.scored.images.names == found.images.names[:5]
    names = [Path(name).name for name in found.images.names[5:]]
    assert names == ["0.png", "1.png", "new.png"]
    pixels, known = found.labelled  # type: ignore[misc]
    assert known.tolist() == [1, 1, 1]
    rows = np.arange(len(pixels), dtype=np.int64)
    np.testing.assert_array_equal(pixels.read(rows), found.pixels.read(rows + 5))


def test_joined_pixels_read_any_rows(tmp_path: Path, make_folder: MakeFolder) -> None:
    source, target = make_folder("source", CLASSES), make_folder("target", CLASSES, seed=50_000)
    extra = make_folder("extra", {"mug": 2, "pen": 2}, seed=90_000)
    found = prepared(source, target, open_domain(extra), tmp_path / "cache")
    one_by_one = [found.pixels.read(np.array([row]))[0] for row in range(len(found.pixels))]
    rows = np.array([9, 0, 10, 3, 3, 7])
    np.testing.assert_array_equal(found.pixels.read(rows), np.stack([one_by_one[r] for r in rows]))
    assert sorted(found.pixels.order.tolist()) == [*range(11)]


def test_batches_bring_labelled_images_with_their_own_labels(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    source, target = make_folder("source", CLASSES), make_folder("target", CLASSES, seed=50_000)
    extra = make_folder("extra", {"mug": 2, "pen": 1}, seed=90_000)
    found = prepared(source, target, open_domain(extra), tmp_path / "cache")
    still = Preprocessing(size=18, resize=18, flip=False)
    batches = Batches([], [], found.pixels, labelled=found.labelled, preprocessing=still)
    assert len(batches) == 1  # passes over the target, without a source
    batch = batches.batch(0, 0)
    assert (len(batch.source), len(batch.labels)) == (0, 0)
    assert batch.labelled is not None
    assert batch.known is not None
    assert len(batch.labelled) == len(batch.known) == 5  # a third of 16
    pixels, known = found.labelled  # type: ignore[misc]
    wanted = {pixels.read(np.array([row])).tobytes(): known[row] for row in range(3)}
    mean, std = (np.array(x).reshape(3, 1, 1) for x in (still.mean, still.std))
    for image, label in zip(batch.labelled.numpy(), batch.known.tolist(), strict=True):
        original = np.rint((image * std + mean) * 255).astype(np.uint8).transpose(1, 2, 0)
        assert wanted[original[None].tobytes()] == label


def test_mistakes_in_labels(tmp_path: Path, make_folder: MakeFolder) -> None:
    source, target = make_folder("source", CLASSES), make_folder("target", CLASSES, seed=50_000)
    with pytest.raises(DialError, match=r"among the 2 classes.*got cup"):
        as_labelled(open_domain(make_folder("cups", {"cup": 1, "mug": 1})), ("mug", "pen"))
    with pytest.raises(DialError, match="images without labels"):
        as_labelled(open_domain(target).unlabelled(), ("mug", "pen"))
    with pytest.raises(DialError, match="target images without a label"):
        prepared(source, target, open_domain(target), tmp_path / "cache")
    double = tmp_path / "double.txt"
    image = sorted(target.rglob("*.png"))[0]
    double.write_text(f"{image} mug\n{image} pen\n")
    with pytest.raises(DialError, match="one label for each image"):
        prepared(source, target, open_domain(double), tmp_path / "cache")
