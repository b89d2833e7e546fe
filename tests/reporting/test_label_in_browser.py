"""The page to label images by hand, in a real browser: what a person clicks and types."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dial
from dial import Run
from dial.data.datasets import open_domain
from dial.reporting.label import Sample, render
from dial.reporting.pictures import budget_of, encode
from dial.selection.intervals import accuracy_interval

from ..conftest import CLASSES
from .conftest import requested
from .labelling import content, make_sample, photograph, rows

DESKTOP, PHONE = (1280, 800), (390, 844)
DASH = "\u2013"


class Person:
    """Somebody in front of a page."""

    def __init__(self, browser: Any, page: Path, size: tuple[int, int] = DESKTOP) -> None:
        self.browser, self.page, self.downloads = browser, page, page.parent / "downloads"
        width, height = size
        mobile = size == PHONE
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        behavior = {"behavior": "allow", "downloadPath": str(self.downloads)}
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
        self.open()

    def open(self) -> None:
        self.browser.get(self.page.as_uri())

    def press(self, *keys: str) -> None:
        for key in keys:
            self.browser.switch_to.active_element.send_keys(key)

    def click(self, name: str) -> None:
        self.browser.find_element("id", name).click()

    def choose(self, name: str) -> None:
        """Click the button of a class."""
        buttons = self.browser.find_elements("css selector", ".class")
        next(
            each for each in buttons if each.find_element("css selector", "span").text == name
        ).click()

    def text(self, name: str) -> str:
        return str(self.browser.find_element("id", name).text)

    @property
    def place(self) -> str:
        return self.text("place")

    @property
    def shown(self) -> list[str]:
        """The classes that are there to choose from, in their order."""
        script = "return [...document.querySelectorAll('.class span')].map(e => e.textContent)"
        return [*self.browser.execute_script(script)]

    @property
    def pressed(self) -> list[str]:
        script = (
            "return [...document.querySelectorAll('[aria-pressed=true]')].map(e => e.textContent)"
        )
        return [*self.browser.execute_script(script)]

    def save(self, name: str = "labels.csv") -> Path:
        """Save the table; where the browser put it."""
        file = self.downloads / name
        file.unlink(missing_ok=True)
        self.click("save")
        deadline = time.monotonic() + 300
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return file


def write(folder: Path, sample: Sample, classes: list[str]) -> Path:
    page = folder / "label.html"
    page.write_text(render(sample, classes, run=folder / "run"), encoding="utf-8")
    return page


def test_a_person_labels_a_sample_by_keys_and_buttons(
    browser: Any, finished: Run, tmp_path: Path
) -> None:
    page = dial.label(finished, count=20, out=tmp_path / "label.html")
    images = content(page)["images"]
    truth = [Path(image["path"]).parent.name for image in images]
    key = {name: str(number) for number, name in enumerate(CLASSES, start=1)}
    person = Person(browser, page)
    assert person.place == "1 of 20"
    assert "run · 20 of 33 images, drawn by chance, seed 0" in person.text("about")
    assert person.shown == [*CLASSES]
    assert "Predicted" not in browser.find_element("tag name", "body").text
    for number in range(5):
        person.press(key[truth[number]])
    assert person.place == "6 of 20"
    person.choose(truth[5])
    person.press(key["circle"], "\ue003")  # a wrong one, taken back by Backspace
    assert person.place == "7 of 20"
    assert person.text("done") == "6 answered"
    person.choose(truth[6])
    person.press("?")
    assert person.text("note") == "Image 8 answered: cannot tell"
    person.open()  # reloading goes on
    assert person.place == "9 of 20"
    person.press("!")
    assert person.text("prediction") == f"Predicted: {CLASSES[images[8]['predicted']]}"
    person.press(key[truth[8]])
    assert person.text("prediction") == "Show prediction"
    person.press("\ue012")  # left
    assert person.place == "9 of 20"
    assert [text.lstrip("123") for text in person.pressed] == [truth[8]]
    person.press("\ue014")
    for number in range(9, 20):
        person.choose(truth[number])
    assert person.place == "Results"
    told = [number for number in range(20) if number != 7]
    right = sum(CLASSES[images[number]["predicted"]] == truth[number] for number in told)
    low, high = accuracy_interval(right, 19, 33)
    tiles = person.text("tiles").replace("\u202f", " ")
    assert f"{100 * right / 19:.1f} %" in tiles
    assert f"{100 * low:.1f}{DASH}{100 * high:.1f} %" in tiles
    table = person.save()
    found = rows(table.read_text())
    assert [row["label"] for row in found] == [
        "" if number == 7 else name for number, name in enumerate(truth)
    ]
    assert [row["path"] for row in found] == [image["path"] for image in images]
    assert [row["peeked"] for row in found] == ["yes" if n == 8 else "no" for n in range(20)]
    fixed = {"purpose": "score", "population": "33", "sample": "20", "seed": "0", "run": "run"}
    assert all(fixed.items() <= row.items() for row in found)
    scores = dial.evaluate(finished, table)
    assert scores.accuracy == pytest.approx(right / 19)
    assert (scores.interval, scores.peeked, scores.unsure) == ((low, high), 1, 1)


def test_digits_have_their_own_keys(browser: Any, tmp_path: Path) -> None:
    domain = open_domain("digits:optdigits")
    pixels, labels = domain.images.pixels, domain.labels
    from PIL import Image

    pictures = [encode(Image.fromarray(pixels[row][..., 0]), 60_000) for row in range(10)]
    sample = replace(
        make_sample(10, 10),
        pictures=tuple(pictures),
        predicted=tuple(labels.indices[:10].tolist()),
        names=tuple(domain.images.names[:10]),
    )
    person = Person(browser, write(tmp_path, sample, [*labels.classes]))
    assert person.shown == [*"1234567890"]
    assert browser.find_element("css selector", "#frame img").size["width"] == 480
    person.press(*(labels.classes[index] for index in labels.indices[:10]))
    assert person.place == "Results"
    assert "100.0" in person.text("tiles")
    assert not browser.find_element("id", "others").is_displayed()


def test_many_classes_are_found_by_typing(browser: Any, tmp_path: Path) -> None:
    names = ["back_pack", "bike", "bike_helmet", "desk lamp", "Überzug", "keyboard", "mouse"]
    names += [f"thing {letter}" for letter in "abcdefghi"]
    person = Person(browser, write(tmp_path, make_sample(len(names)), names))
    person.press("b", "i")
    assert person.shown == ["bike", "bike_helmet"]
    person.press("\ue015", "\ue007")  # down, Enter
    assert person.text("note") == "Image 1 answered: bike_helmet"
    assert len(person.shown) == len(names)
    person.press("l", "a", "\ue007")
    assert person.text("note") == "Image 2 answered: desk lamp"
    person.press("u", "b", "e", "\ue007")
    assert person.text("note") == "Image 3 answered: Überzug"
    person.press("k", "P")
    assert person.shown == []
    assert browser.find_element("id", "none").is_displayed()
    person.press("\ue007", "\ue003", "\ue003")  # Enter takes nothing, Backspace edits
    assert person.place == "4 of 12"
    person.press("p")
    person.press("\ue00c")  # Escape
    assert len(person.shown) == len(names)
    person.press("2")
    assert person.text("note") == "Image 4 answered: bike"
    browser.find_element("tag name", "body").send_keys("\ue009z")  # Ctrl+Z
    assert person.place == "4 of 12"
    person.press("h", "e", "l", "1")
    assert person.text("note") == "Image 4 answered: bike_helmet"


def test_names_with_digits_are_found_by_digits(browser: Any, tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(1000)]
    person = Person(browser, write(tmp_path, make_sample(1000), names))
    person.press("7", "1", "3", "\ue007")
    assert person.text("note") == "Image 1 answered: class 713"


def test_answers_that_are_changed_after_the_predictions_were_seen(
    browser: Any, tmp_path: Path
) -> None:
    person = Person(browser, write(tmp_path, make_sample(3, 5), ["a", "b", "c"]))
    person.press("1", "2", "3", "1")  # the fourth differs from its prediction
    person.click("results")
    assert "Where you and the model differ" in browser.find_element("tag name", "body").text
    assert person.text("gallery").splitlines() == ["You: a", "Model: b"]
    person.click("resume")
    assert person.place == "5 of 5"
    person.click("back")
    assert person.text("prediction") == "Predicted: b"
    person.press("2", "1")
    assert [row["peeked"] for row in rows(person.save().read_text())] == ["no"] * 3 + ["yes", "no"]


def test_a_table_of_half_the_answers_and_a_new_start(browser: Any, tmp_path: Path) -> None:
    sample = make_sample(3, 6)
    person = Person(browser, write(tmp_path, sample, ['a "b", c', "=d", "e"]))
    person.press("1", "2")
    person.click("results")
    found = rows(person.save().read_text())
    assert [(row["path"], row["label"]) for row in found] == [
        (sample.names[0], 'a "b", c'),
        (sample.names[1], "=d"),
    ]
    person.click("restart")
    person.click("keep")
    assert person.text("done") == "2 answered"
    person.click("restart")
    assert "2 answers" in person.text("question")
    person.click("discard")
    assert (person.place, person.text("done")) == ("1 of 6", "0 answered")
    person.open()
    assert person.text("done") == "0 answered"


def test_pages_of_other_samples_do_not_share_answers(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    sample = make_sample(3, 6)
    person = Person(browser, write(tmp_path, sample, ["a", "b", "c"]))
    person.press("1")
    Person(browser, write(tmp_path, replace(sample, seed=1), ["a", "b", "c"]))
    assert person.text("done") == "0 answered"

    def answered() -> str:
        Person(browser, write(tmp_path, sample, ["a", "b", "c"]))
        return person.text("done")

    # A busy browser hands what one page stores to the next one a moment later.
    WebDriverWait(browser, 10).until(lambda _: answered() == "1 answered")


def test_a_page_for_training_shows_no_accuracy(browser: Any, tmp_path: Path) -> None:
    sample = replace(make_sample(3, 2), purpose="training")
    person = Person(browser, write(tmp_path, sample, ["a", "b", "c"]))
    assert "Never use their labels for scoring" in browser.find_element("tag name", "body").text
    person.press("1", "2")
    assert "accuracy" not in person.text("tiles")
    found = rows(person.save("labels-training.csv").read_text())
    assert [row["purpose"] for row in found] == ["training"] * 2


@pytest.mark.parametrize(
    ("right", "sample", "population"),
    [(0, 5, 500), (3, 5, 500), (46, 50, 795), (49, 50, 200), (50, 50, 50), (180, 200, 20_000)],
)
def test_the_interval_is_pythons(
    browser: Any, tmp_path: Path, right: int, sample: int, population: int
) -> None:
    images = replace(make_sample(2, sample), population=population, predicted=(0,) * sample)
    page = write(tmp_path, images, ["a", "b"])
    key = content(page)["key"]
    answers = [0] * right + [1] * (sample - right)
    person = Person(browser, page)
    browser.execute_script(
        "localStorage.setItem(arguments[0], JSON.stringify({answers: arguments[1], place: 1e6}))",
        f"dial-label:{key}",
        answers,
    )
    person.open()
    low, high = accuracy_interval(right, sample, population)
    tiles = person.text("tiles").replace("\u202f", " ")
    assert f"{100 * low:.1f}{DASH}{100 * high:.1f} %" in tiles
    assert f"{100 * right / sample:.1f} %" in tiles


ODD = ["</script><script>alert(1)</script>", "x" * 200, "犬 " * 60]
PAGES = {
    "few": (make_sample(3), ["mug", "pen", "scissors"]),
    "odd": (make_sample(3), ODD),
    "many": (make_sample(300), [f"{'long_name_' * 3}{i}" for i in range(300)]),
}


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_stand_alone_and_fit(
    browser: Any, tmp_path: Path, name: str, scheme: str, size: tuple[int, int]
) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    page = write(tmp_path, *PAGES[name])
    for log in ("performance", "browser"):
        browser.get_log(log)  # what other pages left
    person = Person(browser, page, size)
    person.choose(PAGES[name][1][0])
    person.click("results")
    overflow = "return document.documentElement.scrollWidth"
    assert browser.execute_script(overflow) <= size[0]
    person.click("resume")
    assert browser.execute_script(overflow) <= size[0]
    assert browser.get_log("browser") == []
    assert requested(browser) == {page.as_uri()}
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 22, 26)") == (scheme == "dark")
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('button')].filter(b => b.offsetParent)"
        ".map(b => Math.min(b.offsetWidth, b.offsetHeight))"
    )
    assert min(sizes) >= 40  # a fingertip
    image = browser.find_element("css selector", "#frame img")
    assert image.get_property("naturalWidth") > 0
    assert image.size["height"] > size[1] / 4


PRESS = """
const [keys, done] = arguments;
const times = [];
const press = (place) => {
  if (place === keys.length) return done(times);
  const start = performance.now();
  document.dispatchEvent(new KeyboardEvent("keydown", {key: keys[place], bubbles: true}));
  document.body.offsetHeight; // layout
  requestAnimationFrame(() => setTimeout(() => {
    times.push(performance.now() - start);
    press(place + 1);
  }));
};
press(0);
"""


def test_a_key_is_answered_at_once(browser: Any, tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(1000)]
    pictures = tuple(encode(photograph(seed), budget_of(200)) for seed in range(4))
    sample = replace(make_sample(1000, 200), pictures=pictures * 50)
    Person(browser, write(tmp_path, sample, names))
    times = browser.execute_async_script(PRESS, ["?", "?", "ArrowLeft", "ArrowRight"] * 5)
    assert np.median(times) < 100
    found = browser.execute_script(
        "const search = document.getElementById('search'), start = performance.now();"
        "search.value = '77'; search.dispatchEvent(new Event('input'));"
        "document.body.offsetHeight; return performance.now() - start"
    )
    assert found < 100


@pytest.mark.slow
def test_webcam_by_keyboard(browser: Any, office31: Path, tmp_path: Path) -> None:
    run = dial.adapt(
        "office31:dslr",
        "office31:webcam",
        data=office31.parent,
        out=tmp_path / "run",
        method="frozen",
        image_size=64,
        quiet=True,
        report=False,
    )
    page = dial.label(run, out=tmp_path / "label.html")
    images = content(page)["images"]
    truth = [Path(image["path"]).parent.name for image in images]
    person = Person(browser, page)
    assert len(person.shown) == 31
    for name in truth:
        person.press(name, "\ue007")
    assert person.place == "Results"
    table = person.save()
    assert [row["label"] for row in rows(table.read_text())] == truth
    right = sum(row["label"] == row["predicted"] for row in rows(table.read_text()))
    scores = dial.evaluate(run, table)
    assert scores.accuracy == pytest.approx(right / 50)
    assert scores.interval == accuracy_interval(right, 50, 795)
