"""Folders and image lists as users have them."""

import os
from pathlib import Path

import pytest

from dial.data.domain import ImageFiles
from dial.data.folders import read_folder, read_list
from dial.errors import DialError

from ..conftest import MakeFolder, MakeImage


def files(root: Path) -> list[str]:
    images = read_folder(root).images
    assert isinstance(images, ImageFiles)
    return [path.relative_to(root).as_posix() for path in images.paths]


def classes(root: Path) -> dict[str, int] | None:
    labels = read_folder(root).labels
    return labels.counts if labels else None


def test_class_folders(make_folder: MakeFolder) -> None:
    assert classes(make_folder("amazon", {"mug": 3, "pen": 2})) == {"mug": 3, "pen": 2}


def test_folder_images_of_office31(make_folder: MakeFolder) -> None:
    assert classes(make_folder("amazon", {"images/mug": 3, "images/pen": 2})) == {
        "mug": 3,
        "pen": 2,
    }


def test_flat_folder_has_no_labels(make_folder: MakeFolder) -> None:
    assert classes(make_folder("photos", {".": 3})) is None
    assert classes(make_folder("more photos", {"images": 3})) is None


def test_deeper_folders_belong_to_their_class(make_folder: MakeFolder) -> None:
    root = make_folder("amazon", {"mug/2019/may": 2, "mug/2020": 1, "pen": 1})
    assert classes(root) == {"mug": 3, "pen": 1}


def test_loose_images_make_folders_mere_folders(make_folder: MakeFolder) -> None:
    root = make_folder("mixed", {".": 1, "mug": 2})
    domain = read_folder(root)
    assert len(domain.images) == 3
    assert domain.labels is None
    assert domain.notes == ("1 images lie outside the folders, so the folders are not classes",)


def test_spaces_and_other_alphabets(make_folder: MakeFolder) -> None:
    root = make_folder("r\u00e9serve 2", {"caf\u00e9 au lait": 1, "\u8336": 1})
    assert classes(root) == {"caf\u00e9 au lait": 1, "\u8336": 1}


def test_names_that_are_not_utf8_can_be_printed(tmp_path: Path, make_image: MakeImage) -> None:
    image = make_image(tmp_path / "a.png")
    folder = os.fsencode(tmp_path) + b"/domain/m\xfcg"
    os.makedirs(folder)
    os.rename(os.fsencode(image), folder + b"/\xfc.png")
    domain = read_folder(tmp_path / "domain")
    assert domain.labels is not None
    assert domain.labels.classes == ("m\\xfcg",)


def test_litter_is_ignored_and_other_files_are_counted(make_folder: MakeFolder) -> None:
    root = make_folder("amazon", {"mug": 1, "pen": 1, "__MACOSX/mug": 1, ".trash": 1})
    for name in ("Thumbs.db", "mug/.DS_Store", "mug/._000.png", "pen/desktop.ini"):
        (root / name).write_bytes(b"\0")
    (root / "README.md").write_text("about")
    (root / "empty").mkdir()
    assert files(root) == ["mug/000.png", "pen/000.png"]
    assert read_folder(root).notes == (
        "1 files are not images and were ignored: 1 .md",
        "1 folders hold no images: empty",
    )


def test_suffixes_in_capitals_and_images_we_cannot_read_count(tmp_path: Path) -> None:
    for name in ("a.JPG", "b.heic", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    assert files(tmp_path) == ["a.JPG", "b.heic"]


def test_links_are_followed_but_not_in_circles(make_folder: MakeFolder) -> None:
    root = make_folder("amazon", {"mug": 1})
    elsewhere = make_folder("elsewhere", {".": 2})
    (root / "pen").symlink_to(elsewhere)
    (root / "mug" / "again").symlink_to(root)
    assert classes(root) == {"mug": 1, "pen": 2}


def test_no_images(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"wanted images in .*, got none, no files at all"):
        read_folder(tmp_path)
    (tmp_path / "a.csv").touch()
    with pytest.raises(DialError, match=r"only other files \(1 .csv\)"):
        read_folder(tmp_path)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DialError, match="No such file or directory"):
        read_folder(tmp_path / "nowhere")


def test_folder_that_cannot_be_read(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder("amazon", {"mug": 1, "pen": 1})
    scandir = os.scandir

    def refuse(path: str) -> "os._ScandirIterator[str]":
        if str(path).endswith("pen"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # permissions do not hold back the superuser
    with pytest.raises(DialError, match=r"1 that cannot: .*pen \(Permission denied\)"):
        read_folder(root)


@pytest.fixture
def root(make_folder: MakeFolder) -> Path:
    return make_folder("office", {"my mugs": 2, "pen": 1})


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8-sig")
    return file


def test_paths_with_spaces_and_numbers_as_labels(root: Path) -> None:
    file = write(root / "all.txt", "my mugs/000.png 10\n\nmy mugs/001.png 10\npen/000.png 9\n")
    domain = read_list(file)
    assert domain.labels is not None
    assert domain.labels.classes == ("9", "10")
    assert domain.labels.indices.tolist() == [1, 1, 0]
    assert domain.images == ImageFiles(
        (root / "my mugs/000.png", root / "my mugs/001.png", root / "pen/000.png")
    )


def test_label_of_several_words_after_a_tab(root: Path) -> None:
    labels = read_list(write(root / "all.tsv", "pen/000.png\tball pen\n")).labels
    assert labels is not None
    assert labels.classes == ("ball pen",)


def test_list_in_a_folder_beside_the_images(root: Path) -> None:
    domain = read_list(write(root / "lists" / "a.txt", "pen/000.png 0\n"))
    assert domain.images == ImageFiles((root / "pen/000.png",))


def test_list_with_the_images_folder_given(root: Path, tmp_path: Path) -> None:
    domain = read_list(write(tmp_path / "far" / "a.txt", "pen/000.png 0\n"), data=root)
    assert domain.images == ImageFiles((root / "pen/000.png",))


def test_without_labels(root: Path) -> None:
    domain = read_list(write(root / "all.txt", "my mugs/000.png\npen/000.png\n"))
    assert domain.labels is None
    assert domain.images == ImageFiles((root / "my mugs/000.png", root / "pen/000.png"))


def test_missing_label_is_reported_with_its_line(root: Path) -> None:
    with pytest.raises(DialError, match=r"line 3: 'pen/000.png'"):
        read_list(write(root / "all.txt", "my mugs/000.png 0\n\npen/000.png\n"))


@pytest.mark.parametrize(("content", "got"), [(b"", "empty"), (b"\xff\xfe\x00", "not UTF-8")])
def test_what_is_no_list(tmp_path: Path, content: bytes, got: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DialError, match=got):
        read_list(tmp_path / "a.txt")
