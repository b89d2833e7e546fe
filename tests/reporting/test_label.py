"""The page to label images by hand, as it is written: whom it draws, what it holds and weighs."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import dial
from dial import DialError, Run
from dial.cli import app
from dial.data.datasets import open_domain
from dial.data.domain import Domain, ImageFiles
from dial.reporting.label import render
from dial.reporting.pictures import budget_of, encode
from dial.selection.intervals import accuracy_interval

from ..commands import run as command
from ..conftest import CLASSES, SETTINGS
from .labelling import content, make_sample, opened, photograph, write_table


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose target is in memory."""
    root = tmp_path_factory.mktemp("digits")
    options: dict[str, Any] = {"method": "source_only", "steps": 2, "quiet": True, "report": False}
    return dial.adapt("digits:mnist", "digits:optdigits", out=root / "run", **options)


def say(*words: object) -> str:
    """What the command prints."""
    outcome = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def truth(page: Path) -> dict[str, str]:
    """The class folder of each image of a page."""
    return {image["path"]: Path(image["path"]).parent.name for image in content(page)["images"]}


def test_the_same_seed_draws_the_same_images_by_chance(finished: Run, tmp_path: Path) -> None:
    first = content(dial.label(finished, count=12, out=tmp_path / "1.html"))
    again = content(dial.label(finished.folder, count=12, out=tmp_path / "2.html"))
    other = content(dial.label(finished, count=12, seed=1, out=tmp_path / "3.html"))
    assert first == again
    paths = [[image["path"] for image in page["images"]] for page in (first, other)]
    assert len(set(paths[0])) == 12
    assert set(paths[0]) != set(paths[1])
    assert first["key"] != other["key"]
    labels = [Path(path).parent.name for path in paths[0]]
    assert labels != sorted(labels)
    assert (first["population"], first["seed"], first["run"]) == (33, 0, "run")
    more = content(dial.label(finished, count=99, out=tmp_path / "4.html"))
    assert len(more["images"]) == 33


def test_predictions_on_the_page_are_the_runs(finished: Run, folders: tuple[Path, Path]) -> None:
    page = dial.label(finished, count=20)
    assert page == finished.folder / "label.html"
    wanted = {item.path: item.label for item in dial.predict(finished, [folders[1].resolve()])}
    held = content(page)
    assert held["classes"] == [*CLASSES]
    for image in held["images"]:
        assert CLASSES[image["predicted"]] == wanted[image["path"]]
        assert image["small"]
        with Image.open(image["path"]) as original:
            assert np.array_equal(opened(image["source"]), original.convert("RGB"))


def test_the_saved_table_scores_exactly_these_images(finished: Run, tmp_path: Path) -> None:
    page = dial.label(finished, count=20, out=tmp_path / "page.html")
    labels = truth(page)
    unsure = [*labels][3]
    table = write_table(page, tmp_path / "labels.csv", labels | {unsure: ""})
    images = [each for each in content(page)["images"] if each["path"] != unsure]
    right = sum(CLASSES[image["predicted"]] == labels[image["path"]] for image in images)
    scores = dial.evaluate(finished, table)
    assert scores.accuracy == pytest.approx(right / 19)
    assert (scores.images, scores.unsure, scores.population) == (19, 1, 33)
    assert scores.interval == accuracy_interval(right, 19, 33)
    shown = say("evaluate", finished.folder, table, "--quiet")
    low, high = scores.interval
    assert f"accuracy {right / 19:.1%} on 19 images\n" in shown
    assert f"95% interval {low:.1%} to {high:.1%}, for the 33 images that these were" in shown
    assert "1 more could not be told" in shown
    told = json.loads(say("evaluate", finished.folder, table, "--json", "-q"))
    assert told["interval"] == pytest.approx(scores.interval)


def test_folders_have_an_interval_too(finished: Run, folders: tuple[Path, Path]) -> None:
    scores = dial.evaluate(finished, folders[1])
    assert scores.interval == accuracy_interval(round(33 * scores.accuracy), 33)
    shown = say("evaluate", finished.folder, folders[1], "--quiet")
    assert "95% interval" in shown
    assert "for images like these" in shown


def test_images_that_left_are_one_error(finished: Run, tmp_path: Path) -> None:
    page = dial.label(finished, count=5, out=tmp_path / "page.html")
    table = write_table(page, tmp_path / "labels.csv", truth(page))
    table.write_text(table.read_text().replace(".png", ".gone"))
    with pytest.raises(DialError, match=r"the 5 images that .*labels.csv has labels of, got 5"):
        dial.evaluate(finished, table)


def test_digits_in_memory(digits: Run, tmp_path: Path) -> None:
    page = dial.label(digits, count=30)
    held = content(page)
    assert held["population"] == 1797
    domain = open_domain("digits:optdigits")
    labels = {}
    for image in held["images"]:
        place, _, row = image["path"].rpartition("/")
        assert place == "digits:optdigits"
        assert np.array_equal(opened(image["source"]), domain.images.pixels[int(row)][..., 0])
        labels[image["path"]] = domain.labels.classes[domain.labels.indices[int(row)]]
    table = write_table(page, tmp_path / "labels.csv", labels)
    scores = dial.evaluate(digits, table)
    right = sum(
        held["classes"][image["predicted"]] == labels[image["path"]] for image in held["images"]
    )
    assert scores.accuracy == pytest.approx(right / 30)
    assert scores.interval == accuracy_interval(right, 30, 1797)


def test_training_images_are_others_and_are_never_scored_with(
    finished: Run, tmp_path: Path
) -> None:
    with pytest.raises(DialError, match="33 images, which are all for scoring"):
        dial.label(finished, purpose="training", count=9)
    many = tmp_path / "many"
    for number, kind in enumerate(CLASSES):
        for image in range(50):
            path = many / kind / f"{image}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(
                np.random.default_rng(100 * number + image).integers(0, 255, (8, 8, 3), np.uint8)
            ).save(path)
    for seed in range(3):
        pages = [
            content(dial.label(finished, many, count=50, seed=seed, purpose=p, out=tmp_path / p))
            for p in ("score", "training")
        ]
        drawn = [{image["path"] for image in page["images"]} for page in pages]
        assert [len(each) for each in drawn] == [50, 50]
        assert not drawn[0] & drawn[1]
    page = tmp_path / "training"
    assert "Never use their labels for scoring" in page.read_text()
    table = write_table(page, tmp_path / "labels.csv", truth(page))
    with pytest.raises(DialError, match="chosen for training, which are harder than others"):
        dial.evaluate(finished, table)


def test_labels_go_into_training_and_those_images_are_not_drawn_again(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    page = dial.label(finished, count=6, out=tmp_path / "page.html")
    labels = truth(page)
    unsure = next(iter(labels))
    table = write_table(page, tmp_path / "labels.csv", labels | {unsure: ""})
    options = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "method": "frozen"}
    run = dial.adapt(*folders, out=tmp_path / "new", labelled=table, **options)
    assert run.result["target_images"] == 33 - 5
    drawn = content(dial.label(run, count=99))
    assert drawn["population"] == 33 - 5
    paths = {image["path"] for image in drawn["images"]}
    assert unsure in paths
    assert not paths & (labels.keys() - {unsure})
    table.unlink()
    with pytest.raises(DialError, match=r"labelled images that took part .*; fix: bring"):
        dial.label(run)


def test_unreadable_images_are_replaced_and_counted(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    images = Path(shutil.copytree(folders[1], tmp_path / "images"))
    broken = sorted(images.rglob("*.png"))[::3]
    for path in broken:
        path.write_bytes(b"no image")
    held = content(dial.label(finished, images, count=15, out=tmp_path / "page.html"))
    paths = {image["path"] for image in held["images"]}
    assert len(paths) == 15
    assert not paths & {str(path) for path in broken}
    assert held["unreadable"] > 0
    for path in images.rglob("*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(DialError, match="33 whose labels the run does not know, of which 33"):
        dial.label(finished, images)


def test_a_place_that_is_gone(folders: tuple[Path, Path], tmp_path: Path) -> None:
    images = Path(shutil.copytree(folders[1], tmp_path / "images"))
    options = SETTINGS | {"use_cache": False, "method": "frozen"}
    run = dial.adapt(folders[0], images, out=tmp_path / "run", **options)
    moved = images.rename(tmp_path / "moved")
    result = command("label", run.folder)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "which does not exist; fix: name the folder of these images as IMAGES" in result.stderr
    made = say("label", run.folder, moved, "--count", 4, "--quiet")
    assert made.strip() == str(run.folder / "label.html")
    assert len(content(run.folder / "label.html")["images"]) == 4
    target = Domain("object", ImageFiles(tuple(sorted(moved.rglob("*.png")))))
    by_object = dial.adapt(folders[0], target, out=tmp_path / "object", **options)
    with pytest.raises(DialError, match="passed as an object; fix: name the folder"):
        dial.label(by_object)


def test_one_of_several_targets(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(folders[1] / "square", tmp_path / "other"))
    options = SETTINGS | {"use_cache": False, "epochs": 1}
    several = dial.adapt(folders[0], [folders[1], other], out=tmp_path / "run", **options)
    say("label", several.folder, "--target", "other", "--count", 5, "-q")
    page = several.folder / "other" / "label.html"
    assert {Path(image["path"]).parent for image in content(page)["images"]} == {other.resolve()}
    with pytest.raises(DialError, match="one of the targets dark, other"):
        dial.label(several.folder)
    dark = content(dial.label(several["dark"], count=3))
    assert str(folders[1].resolve()) in dark["images"][0]["path"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"count": 0}, "wanted one image or more to label, got 0"),
        ({"seed": -1}, "wanted a seed of 0 or more, got -1"),
        ({"purpose": "fun"}, "wanted labels for one of score and training, got 'fun'"),
        ({"images": "nowhere"}, "got 'nowhere', which does not exist"),
    ],
)
def test_wrong_use(finished: Run, words: dict[str, Any], message: str) -> None:
    with pytest.raises(DialError, match=message):
        dial.label(finished, **words)


def test_a_page_of_200_photographs_weighs_less_than_15_megabytes() -> None:
    pictures = [encode(photograph(seed), budget_of(200)) for seed in range(3)]
    assert all(30_000 < len(picture.source) <= 60_000 for picture in pictures)
    for picture in pictures:
        assert opened(picture.source).size == (picture.width, picture.height)
        assert 500 <= picture.width == picture.height <= 900
        page = render(make_sample(31, 200, picture=picture), ["a"] * 31, run=Path("run"))
        assert len(page.encode()) < 15e6


def test_noise_is_made_to_fit() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (1000, 700, 3), np.uint8)
    picture = encode(Image.fromarray(noise), budget_of(200))
    assert len(picture.source) <= 60_000
    assert picture.width / picture.height == pytest.approx(0.7, abs=0.01)


def test_the_camera_s_rotation_is_applied(finished: Run, tmp_path: Path) -> None:
    image = Image.new("RGB", (300, 200), "white")
    image.paste("red", (0, 0, 150, 200))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    (tmp_path / "images").mkdir()
    for number in range(2):
        image.save(tmp_path / "images" / f"{number}.jpg", exif=exif, quality=95 - number)
    held = content(dial.label(finished, tmp_path / "images", out=tmp_path / "page.html"))
    shown = opened(held["images"][0]["source"]).convert("RGB")
    assert shown.size == (200, 300)
    red, white = shown.getpixel((100, 40)), shown.getpixel((100, 260))
    assert red[0] > 200  # type: ignore[index]
    assert red[1] < 90  # type: ignore[index]
    assert min(white) > 200  # type: ignore[arg-type, type-var]


def test_names_cannot_become_part_of_the_page() -> None:
    names = ["</script><script>alert(1)</script>", "<!--", "&lt;b&gt;", "\u2028'\""]
    page = render(make_sample(4), names, run=Path("<img src=x onerror=alert(2)>"))
    assert page.count("<script") == 2
    assert "alert(" not in page.replace("\\u003cscript\\u003ealert(1)", "").replace(
        "onerror=alert(2)\\u003e", ""
    )
    assert "<b>" not in page
    assert "http" not in page.replace("http-equiv", "")
