"""Names that are HTML or JavaScript: a browser shows them as they are, and runs nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dial.reporting.label import render as render_label
from dial.reporting.page import render

from .conftest import requested
from .labelling import make_sample
from .pages import make_files, make_record

NAMES = (
    "<img src=x onerror=ran()>",
    "</script><script>ran()</script>",
    '"><svg onload="ran()">',
    "' onmouseover='ran()",
    "<a href=javascript:ran()>&amp;&lt;b&gt;</a>",
    "{{ 7 * 7 }}{% raw %}${ran()}",
    "</title></style><!-- <iframe srcdoc=x>",
    "&#60;script&#62;ran()",
)
_RAN = "window.ran = () => { window.hasRun = true; }; window.alert = window.ran"
_COUNTS = """
const counts = {};
for (const element of document.querySelectorAll("*")) {
  const kind = [element.localName, ...element.getAttributeNames().sort()].join(" ");
  counts[kind] = (counts[kind] || 0) + 1;
}
return counts
"""


@pytest.fixture
def watched(browser: Any) -> Iterator[Any]:
    """A browser in which `ran` leaves a trace, and what a page forbids would still be asked for."""
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = browser.execute_cdp_cmd(command, {"source": _RAN})
    for log in ("performance", "browser"):
        browser.get_log(log)  # what other pages left
    yield browser
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def elements(browser: Any, page: Path) -> dict[str, int]:
    """Open a page without its policy; how many elements with which attributes it has."""
    text = page.read_text(encoding="utf-8")
    assert text.count("Content-Security-Policy") == 1
    page.write_text(text.replace("Content-Security-Policy", "x-none"), encoding="utf-8")
    browser.get(page.as_uri())
    found: dict[str, int] = browser.execute_script(_COUNTS)
    return found


def assert_nothing_ran(browser: Any, page: Path) -> None:
    assert browser.execute_script("return window.hasRun") is None
    assert browser.get_log("browser") == []
    assert requested(browser) == {page.as_uri()}


def report(path: Path, names: tuple[str, ...]) -> Path:
    record = make_record(names, images=200)
    rows = [*record.gallery_names]
    called = {row: f"{names[int(row) % len(names)]}/{row}.jpg" for row in rows}
    record = replace(record, gallery_names=called, layers=names[:4], without=names[1])
    files = make_files(record) | {"folder": Path(names[0])}
    files["result"] |= {"source": names[0], "target": names[2], "absent_classes": [names[1]]}
    files["result"] |= {"warnings": [f"adaptation seems to hurt: {name}" for name in names]}
    files["result"] |= {"mixing": dict.fromkeys(names, 0.75), "no_estimate": names[3]}
    files["result"] |= {"estimated_interval": None, "reference": names[4]}
    path.write_text(render(record, **files), encoding="utf-8")
    return path


def plain(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"class {number}" for number in range(len(names)))


def test_the_report_shows_names_as_they_are(watched: Any, tmp_path: Path) -> None:
    usual = elements(watched, report(tmp_path / "usual.html", plain(NAMES)))
    watched.get_log("performance")
    page = report(tmp_path / "report.html", NAMES)
    assert elements(watched, page) == usual
    assert_nothing_ran(watched, page)
    cells = "document.querySelectorAll('#classes tbody td:first-child')"
    assert watched.execute_script(f"return [...{cells}].map(e => e.textContent)") == [*NAMES]
    assert watched.execute_script("return document.querySelector('h1').textContent") == (
        f"{NAMES[0]} → {NAMES[2]}"
    )
    assert watched.title == f"dial: {NAMES[0]} → {NAMES[2]}"
    shown = "return [...document.querySelectorAll('#uncertain .new')].map(e => e.title)"
    assert {*watched.execute_script(shown)} <= {*NAMES}
    files = "return [...document.querySelectorAll('#uncertain small')].map(e => e.title)"
    assert all(name.rpartition("/")[0] in NAMES for name in watched.execute_script(files))
    shown = "return [...document.querySelectorAll('.warn p')].map(e => e.textContent)"
    warned = watched.execute_script(shown)
    assert [f"adaptation seems to hurt: {name}" for name in NAMES] == warned[-len(NAMES) :]


def label_page(path: Path, names: tuple[str, ...]) -> Path:
    sample = make_sample(len(names))
    paths = tuple(f"{names[row % len(names)]}/{row}.png" for row in range(len(sample.names)))
    sample = replace(sample, names=paths)
    path.write_text(render_label(sample, names, run=Path("/there") / names[0]), encoding="utf-8")
    return path


def test_the_page_to_label_on_shows_names_as_they_are(watched: Any, tmp_path: Path) -> None:
    usual = label_page(tmp_path / "usual.html", plain(NAMES))
    counts = elements(watched, usual)
    watched.get_log("performance")
    page = label_page(tmp_path / "label.html", NAMES)
    assert elements(watched, page) == counts
    buttons = "return [...document.querySelectorAll('.class span')].map(e => e.textContent)"
    assert watched.execute_script(buttons) == [*NAMES]
    notes = []
    for number in range(len(NAMES)):
        watched.find_elements("css selector", ".class")[number].click()
        notes.append(watched.find_element("id", "note").text)
    assert [note.partition(": ")[2] for note in notes] == [*NAMES]
    watched.find_element("id", "peek").click()
    assert watched.find_element("id", "prediction").text.partition(": ")[2] in NAMES
    watched.find_element("id", "results").click()
    assert watched.execute_script("return document.querySelectorAll('iframe, svg, a').length") == 0
    assert_nothing_ran(watched, page)
