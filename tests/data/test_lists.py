"""Image-list text files."""

from pathlib import Path

import pytest

from dial.data.domain import ImageFiles
from dial.data.lists import read_list
from dial.errors import DialError

from ..conftest import MakeFolder


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


def test_label_of_several_words_behind_a_tab(root: Path) -> None:
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


def test_missing_label_is_told_with_its_line(root: Path) -> None:
    with pytest.raises(DialError, match=r"line 3: 'pen/000.png'"):
        read_list(write(root / "all.txt", "my mugs/000.png 0\n\npen/000.png\n"))


@pytest.mark.parametrize(("content", "got"), [(b"", "empty"), (b"\xff\xfe\x00", "not UTF-8")])
def test_what_is_no_list(tmp_path: Path, content: bytes, got: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DialError, match=got):
        read_list(tmp_path / "a.txt")
