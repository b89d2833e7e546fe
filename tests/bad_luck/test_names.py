"""Names, numbers and kinds of files that nobody expects among images."""

import csv
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dial
from dial import DialError
from dial.data.check import check
from dial.data.datasets import open_domain
from dial.data.folders import read_folder
from dial.data.prepare import prepare

from ..conftest import QUICK, Call, MakeFolder, MakeImage, as_user, refused

NAMES = (
    "two words", "a\nb", "tab\there", "it's", 'say "so"', "--out", "-q", "a,b", "caf\u00e9",
    "\u8336", "\U0001f600", "=1+1", "[red]x", "<u>x", "100%", "a\\b", "x" * 255,
)  # fmt: skip
BYTES = (b"m\xfcg", b"m\xfdg")  # not UTF-8, and different


@pytest.fixture
def odd(tmp_path: Path, make_image: MakeImage) -> Path:
    """Class folders with names of all kinds."""
    for number, name in enumerate((*NAMES, *map(os.fsdecode, BYTES))):
        for image in range(3):
            make_image(tmp_path / "odd" / name / f"{image}.png", seed=10 * number + image)
    return tmp_path / "odd"


def test_classes_of_all_names_from_start_to_end(
    call: Call, odd: Path, make_folder: MakeFolder, tmp_path: Path
) -> None:
    target = make_folder("target", {".": 8}, seed=5000)
    classes = read_folder(odd).labels
    assert classes is not None
    assert set(classes.classes) == {*NAMES, "m\\xfcg", "m\\xfdg"}
    assert {*classes.counts.values()} == {3}
    assert call("check", odd, target).code == 0
    run = tmp_path / "run"
    told = call("adapt", odd, target, "--out", run, *QUICK)
    assert told.code == 0, told
    assert "[red]x" in (run / "report.html").read_text(encoding="utf-8")
    assert "<u>x" not in (run / "report.html").read_text(encoding="utf-8")
    assert json.loads((run / "config.json").read_text())["classes"] == [*classes.classes]
    told = call("predict", run, odd, "--out", tmp_path / "x.csv", "--top", "-q")
    assert told.code == 0, told
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert len({row["path"] for row in rows}) == 3 * len(classes.classes)
    assert {row[f"label{n}"] for row in rows for n in ("", "_2", "_5")} <= set(classes.classes)
    told = call("evaluate", run, odd, "--json", "-q")
    assert json.loads(told.out)["images"] == 3 * len(classes.classes)
    assert call("evaluate", run, odd, "-q").code == 0
    assert call("label", run, target, "-q").code == 0
    assert call("export", run, tmp_path / "x.onnx").code == 0


def test_the_longest_names_that_there_are(
    call: Call, finished: dial.Run, tmp_path: Path, make_image: MakeImage
) -> None:
    image = make_image(tmp_path / "images" / f"{'x' * 251}.png")
    make_image(tmp_path / "a.png").rename(image.with_name("\u8336" * 83 + "12.png"))
    out = tmp_path / f"{'y' * 243}.csv"
    assert call("predict", finished.folder, image.parent, "--out", out, "-q").code == 0
    assert str(image) in out.read_text(encoding="utf-8")
    longest = tmp_path / f"{'z' * 243}.safetensors"
    assert call("export", finished.folder, longest).code == 0
    assert longest.exists()


def test_one_image_of_a_class_is_enough_and_one_class_is_not(
    call: Call, make_folder: MakeFolder, tmp_path: Path
) -> None:
    target = make_folder("target", {".": 8}, seed=5000)
    single = make_folder("single", {"mug": 1, "pen": 9, "cup": 1})
    assert call("adapt", single, target, "--out", tmp_path / "run", *QUICK).code == 0
    assert call("evaluate", tmp_path / "run", single, "-q").code == 0
    alone = make_folder("alone", {"mug": 1, "pen": 1}, seed=900)
    assert call("adapt", alone, target, "--out", tmp_path / "least", *QUICK).code == 0
    refused(
        call("adapt", make_folder("one", {"mug": 9}), target, "--out", tmp_path / "no", *QUICK),
        "two classes or more",
    )


def test_what_looks_like_an_image_and_is_none(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder("odd", {"mug": 2, "pen": 2, "pen/folder.jpg": 1})
    os.mkfifo(root / "mug" / "pipe.jpg")
    (root / "mug" / "dangling.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (root / "mug" / "circle.jpg").symlink_to(root / "mug" / "circle.jpg")
    (root / "mug" / "null.jpg").symlink_to("/dev/null")
    (root / "mug" / "folder.png").symlink_to(root / "pen" / "folder.jpg")
    (root / "pen" / "first").symlink_to("second")
    (root / "pen" / "second").symlink_to("first")
    domain = open_domain(root)
    assert domain.labels is not None
    assert domain.labels.counts == {"mug": 7, "pen": 3}  # one of them through the link to a folder
    with pytest.raises(DialError, match="4 bad: 2 not a regular file; ") as told:
        prepare([domain], resize=8, use_cache=False, quiet=True)
    for words in (
        "pipe.jpg: not a regular file",
        "null.jpg: not a regular file",
        "dangling.jpg: cannot be read: No such file or directory",
        "circle.jpg: cannot be read: Too many levels of symbolic links",
    ):
        assert words in str(told.value)


def test_two_links_to_one_folder_are_told(make_folder: MakeFolder) -> None:
    root = make_folder("odd", {"mug": 2, "pen": 2})
    (root / "cup").symlink_to(root / "mug")
    (root / "pen" / "up").symlink_to("..")
    domain = open_domain(root)
    assert domain.labels is not None
    assert domain.labels.counts == {"cup": 2, "mug": 2, "pen": 2}
    report = check(domain, open_domain(make_folder("other", {".": 2}, seed=900)), quiet=True)
    mixed = report.sources[0].mislabelled
    assert sorted(Path(name).parent.name for name in mixed[0]) == ["cup", "mug"]


def test_a_list_that_comes_through_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "list")
    for place in (tmp_path / "list", Path("/dev/zero")):
        with pytest.raises(DialError, match=r"a pipe or a device, .* write the list to a file"):
            open_domain(place)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_files_and_folders_without_the_right_to_read(make_image: MakeImage) -> None:
    def read(root: Path) -> Callable[[], object]:
        return lambda: prepare([open_domain(root)], resize=8, use_cache=False, quiet=True)

    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, which others cannot enter
        root = Path(folder, "images")
        for name in ("mug/0.png", "mug/1.png", "pen/0.png"):
            make_image(root / name, seed=len(name))
        Path(folder).chmod(0o755)
        read(root)()  # imports what others cannot read
        (root / "mug" / "1.png").chmod(0)
        told = as_user(read(root))
        assert "DialError: wanted images that can all be read (3 files), got 1 bad" in told
        assert "mug/1.png: cannot be read: Permission denied" in told
        (root / "pen").chmod(0)
        assert "pen (Permission denied)" in as_user(read(root))
        (root / "pen").chmod(0o755)
        for mode in (0o444, 0o311):  # without the right to enter, or to list
            root.chmod(mode)
            told = as_user(read(root))
            root.chmod(0o755)
            assert told.startswith("DialError: wanted a folder of images at"), told
            assert "got Permission denied; fix: check the spelling and the permissions" in told


def many(root: Path, classes: int) -> Path:
    generator = np.random.default_rng(0)
    for number in range(classes):
        folder = root / f"{number:05}"
        folder.mkdir(parents=True)
        noise = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "0.png")
    return root


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_classes(call: Call, make_folder: MakeFolder, tmp_path: Path) -> None:
    source = many(tmp_path / "many", 10_000)
    target = make_folder("target", {".": 8}, seed=5000)
    assert call("check", source, target, "-q").code == 0
    run = tmp_path / "run"
    words = [*QUICK, "--steps", 5, "--method", "adabn"]  # without a head to fit, which takes long
    told = call("adapt", source, target, "--out", run, *words)
    assert told.code == 0, told
    assert call("predict", run, target, "--out", tmp_path / "x.csv", "--top", "-q").code == 0
    assert call("report", run).code == 0
