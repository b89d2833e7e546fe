"""Tables that a page of `dial label` saves, as readers meet them."""

from pathlib import Path

import pytest

from dial import DialError
from dial.data.datasets import open_domain
from dial.data.domain import ImageArray
from dial.data.folders import read_list
from dial.data.hand_labels import COLUMNS
from tests.conftest import MakeImage

HEADER = ",".join(COLUMNS)
REST = "score,795,50,0,run"


def write(folder: Path, *lines: str) -> Path:
    table = folder / "labels.csv"
    table.write_text("\n".join([HEADER, *lines]) + "\n")
    return table


def test_images_that_could_not_be_told_are_left_out(tmp_path: Path, make_image: MakeImage) -> None:
    for name in ("a.png", "b.png", "c, d.png"):
        make_image(tmp_path / name)
    table = write(
        tmp_path,
        f"a.png,,mug,no,{REST}",
        f"b.png,pen,mug,yes,{REST}",
        f'"c, d.png",mug,mug,no,{REST}',
    )
    domain = read_list(table)
    assert domain.images.names == [str(tmp_path / "b.png"), str(tmp_path / "c, d.png")]
    assert domain.labels is not None
    assert domain.labels.counts == {"mug": 1, "pen": 1}
    assert domain.by_hand is not None
    assert vars(domain.by_hand) == {
        "purpose": "score",
        "population": 795,
        "peeked": 1,
        "unsure": 1,
    }


def test_other_tables_keep_their_error(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label,predicted\na.png,,mug\nb.png,pen,mug\n")
    with pytest.raises(DialError, match="a path and a label on every line"):
        read_list(table)
    table.write_text("path,label\na.png,pen\n")
    assert read_list(table).by_hand is None


def test_a_table_without_a_population(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label,purpose\na.png,pen,training\n")
    by_hand = read_list(table).by_hand
    assert by_hand is not None
    assert (by_hand.purpose, by_hand.population, by_hand.peeked) == ("training", None, 0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([f"a.png,,mug,no,{REST}"], "a label in .*labels.csv, got 1 images that could not"),
        ([f"a.png,pen,mug,no,{REST}"] * 2, "each image once in .*, got a.png 2 times"),
        (
            ["a.png,pen,mug,no,fun,795,50,0,run"],
            r"one purpose in .* \(score, training\), got 'fun'",
        ),
        (
            [f"a.png,pen,mug,no,{REST}", "b.png,pen,mug,no,training,795,50,0,run"],
            "got 'score', 'training'; fix: keep tables of several pages apart",
        ),
        (
            [f"a.png,pen,mug,no,{REST}", "b.png,pen,mug,no,score,20,50,0,run"],
            "one population in .*, got '795', '20'",
        ),
        (["a.png,pen,mug,no,score,many,50,0,run"], "a number of images as population"),
    ],
)
def test_tables_that_no_page_saved(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(DialError, match=message):
        read_list(write(tmp_path, *lines))


def test_images_in_memory(tmp_path: Path) -> None:
    lines = [f"digits:optdigits/{row},{row % 10},0,no,{REST}" for row in (7, 3)]
    domain = open_domain(write(tmp_path, *lines))
    whole = open_domain("digits:optdigits")
    assert isinstance(domain.images, ImageArray)
    assert isinstance(whole.images, ImageArray)
    assert (domain.images.pixels == whole.images.pixels[[7, 3]]).all()
    assert domain.labels is not None
    assert [domain.labels.classes[i] for i in domain.labels.indices] == ["7", "3"]
    with pytest.raises(DialError, match="rows of digits:optdigits from 0 to 1796"):
        open_domain(write(tmp_path, f"digits:optdigits/1797,1,0,no,{REST}"))
