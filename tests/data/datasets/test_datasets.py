"""Every data set there is, and the one way to open a domain."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dial.data import datasets
from dial.data.datasets import open_domain, open_domains, open_pair
from dial.data.domain import Domain, ImageArray, ImageFiles, LabelledDomain, Labels
from dial.errors import DialError

from ...conftest import MakeFolder


def test_names() -> None:
    assert datasets.names() == ("digits", "office31", "office_caltech")


@pytest.mark.parametrize("name", datasets.names())
def test_contract(name: str) -> None:
    described = datasets.describe(name)
    assert described["data set"] == name
    assert described["about"].endswith(".")
    datasets.DATASETS.check(datasets.get(name))
    assert list(datasets.get(name).domains) == sorted(datasets.get(name).domains)


def test_path_of_a_folder_a_list_an_image(make_folder: MakeFolder) -> None:
    root = make_folder("a:b", {"mug": 1, "pen": 2})
    assert len(open_domain(root).images) == 3
    assert open_domain(root, unlabelled=True).labels is None
    (root / "list.txt").write_text("mug/000.png mug\n")
    labels = open_domain(root / "list.txt").labels
    assert labels is not None
    assert labels.classes == ("mug",)
    image = root / "mug" / "000.png"
    assert open_domain(str(image)).images == ImageFiles((image,))


def test_home_is_expanded(make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(make_folder("home", {"x/mug": 1, "x/pen": 1})))
    assert len(open_domain("~/x").images) == 2


def test_domains_of_ones_own_stay_as_they_are() -> None:
    pixels = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    labels = Labels.from_names(["pen", "mug", "pen", "mug"])
    lab = Domain("lab", ImageArray(pixels, "lab"), labels)
    field = Domain("field", ImageArray(pixels, "field"), labels)
    assert open_domain(lab) is lab
    assert open_domain(lab, unlabelled=True) == lab.unlabelled()
    source, target = open_pair(lab, field)
    assert source == LabelledDomain("lab", lab.images, labels)
    assert target.labels is not None
    assert target.labels.indices.tolist() == [1, 0, 1, 0]
    with pytest.raises(DialError, match="got lab for both"):
        open_pair(lab, lab)


@pytest.mark.parametrize("layout", ["", "office31/"])
@pytest.mark.parametrize("images", ["", "images/"])
def test_office31_where_it_lies(make_folder: MakeFolder, layout: str, images: str) -> None:
    folder = f"{layout}amazon/{images}"
    data = make_folder("data", {folder + "mug": 1, folder + "pen": 2})
    domain = open_domain("office31:amazon", data=data)
    assert domain.name == "office31:amazon"
    assert domain.labels is not None
    assert domain.labels.counts == {"mug": 1, "pen": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere", "'nowhere', which does not exist"),
        ("~nobody-of-this-name/x", "which does not exist"),
        ("x" * 5000, "which does not exist"),
        ("no/where:x", "'no/where:x', which does not exist"),
        ("office:amazon", "one of the datasets digits, office31, office_caltech, got 'office'"),
        ("office31:caltech", r"\(amazon, dslr, webcam\), got 'caltech'; fix: write office31:am"),
        ("office31:amazon", "folder that holds Office-31's amazon, got none; fix: pass --data"),
        ("office_caltech:dslr", "folder that holds Office-31's dslr, got none"),
        ("office_caltech:caltech", "Caltech's images .* got no folder; fix: pass --data"),
    ],
)
def test_what_cannot_be_opened(text: str, message: str) -> None:
    with pytest.raises(DialError, match=message):
        open_domain(text)


def test_data_without_the_domain(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"Office-31's dslr in .*dslr or .*office31/dslr, got no"):
        open_domain("office31:dslr", data=tmp_path)


def test_pair_has_the_targets_labels_in_the_sources_numbering(make_folder: MakeFolder) -> None:
    source = make_folder("a", {"bike": 1, "mug": 1, "pen": 1})
    target = make_folder("b", {"pen": 2})
    _, matched = open_pair(source, target)
    assert matched.labels is not None
    assert matched.labels.indices.tolist() == [2, 2]
    _, unlabelled = open_pair(source, target, unlabelled=True)
    assert unlabelled.labels is None


def test_pair_of_one_domain_with_itself(make_folder: MakeFolder) -> None:
    source = make_folder("a", {"images/mug": 1, "images/pen": 1})
    for other in (source, source / "images"):
        with pytest.raises(DialError, match="target other than the source"):
            open_pair(source, other)
    with pytest.raises(DialError, match="got digits:optdigits for both"):
        open_pair("digits:optdigits", "digits:optdigits")


def test_pair_whose_classes_do_not_match(make_folder: MakeFolder) -> None:
    source, target = make_folder("a", {"mug": 1, "pen": 1}), make_folder("b", {"cup": 1})
    with pytest.raises(DialError, match=r"1 that are not \(cup\)"):
        open_pair(source, target)


CALTECH = ["003.backpack", "224.touring-bike", "027.calculator", "101.head-phones"]
CALTECH += ["045.computer-keyboard", "127.laptop-101", "046.computer-monitor"]
CALTECH += ["047.computer-mouse", "041.coffee-mug", "238.video-projector"]


def test_caltech_under_the_names_of_either_data_set(make_folder: MakeFolder) -> None:
    folders = [f"256_ObjectCategories/{name}" for name in (*CALTECH, "001.ak47")]
    domain = open_domain(
        "office_caltech:caltech", data=make_folder("data", dict.fromkeys(folders, 1))
    )
    assert domain.labels is not None
    assert len(domain.images) == 10
    assert domain.labels.classes[:3] == ("back_pack", "bike", "calculator")


def test_caltech_with_a_class_missing(make_folder: MakeFolder) -> None:
    folders = [f"caltech/{name}" for name in CALTECH[1:]]
    with pytest.raises(DialError, match=r"10 classes of Office-Caltech .* got none of back_pack"):
        open_domain("office_caltech:caltech", data=make_folder("data", dict.fromkeys(folders, 1)))


@pytest.mark.parametrize(("domain", "count"), [("amazon", 958), ("dslr", 157), ("webcam", 295)])
def test_office_caltech_has_the_published_counts(office31: Path, domain: str, count: int) -> None:
    """Gong et al. 2012, section 4."""
    assert len(open_domain(f"office_caltech:{domain}", data=office31.parent).images) == count


@pytest.mark.parametrize(("domain", "count"), [("mnist", 5000), ("optdigits", 1797)])
def test_digits(domain: str, count: int) -> None:
    digits = open_domain(f"digits:{domain}")
    assert isinstance(digits.images, ImageArray)
    assert digits.images.pixels.shape == (count, 28, 28, 1)
    assert digits.images.pixels.dtype == np.uint8
    assert digits.images.pixels.max() >= 250
    assert digits.labels is not None
    assert digits.labels.classes == tuple("0123456789")
    assert min(digits.labels.counts.values()) >= 170


def test_optdigits_are_the_8x8_digits_enlarged_and_framed() -> None:
    from sklearn.datasets import load_digits

    images = open_domain("digits:optdigits").images
    assert isinstance(images, ImageArray)
    small = [
        np.asarray(Image.fromarray(row[2:-2, 2:-2, 0]).resize((8, 8), Image.Resampling.BOX))
        for row in images.pixels[:50]
    ]
    assert images.pixels.sum() == images.pixels[:, 2:-2, 2:-2].sum()
    assert np.corrcoef(np.stack(small).ravel(), load_digits().images[:50].ravel())[0, 1] > 0.95


def test_several_sources_have_the_union_of_their_classes(make_folder: MakeFolder) -> None:
    first = make_folder("first", {"cup": 2, "pen": 1})
    second = make_folder("second", {"cup": 1, "ant": 2}, seed=1)
    field = make_folder("field", {"ant": 1, "pen": 1}, seed=2)
    other = make_folder("other", {".": 2}, seed=3)
    (one, two), (target, flat) = open_domains([first, second], [field, other])
    assert one.labels.classes == two.labels.classes == ("ant", "cup", "pen")
    assert [one.labels.classes[i] for i in one.labels.indices] == ["cup", "cup", "pen"]
    assert [two.labels.classes[i] for i in two.labels.indices] == ["ant", "ant", "cup"]
    assert one.notes[-1] == "no images of ant, which other sources have"
    assert two.notes[-1] == "no images of pen, which other sources have"
    assert target.labels is not None
    assert target.labels.indices.tolist() == [0, 2]
    assert flat.labels is None


def test_domains_that_are_named_twice(make_folder: MakeFolder) -> None:
    first, second = make_folder("first", {"cup": 2, "pen": 1}), make_folder("second", {".": 2})
    third = make_folder("third", {"cup": 1, "pen": 1}, seed=5)
    with pytest.raises(DialError, match=r"sources that differ, got .*first for both"):
        open_domains([first, first], [second])
    with pytest.raises(DialError, match=r"targets that differ, got .*second for both"):
        open_domains([first], [second, second])
    with pytest.raises(DialError, match=r"a target other than the sources, got .*third for both"):
        open_domains([first, third], [second, third])
