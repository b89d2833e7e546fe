"""The page in a real browser: no error, no request, no overflow on a phone, lines to copy."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dial.reporting.page import render

from .conftest import requested
from .pages import make_files, make_record

PAGES = {
    "usual": make_record(tuple("0123456789")),
    "names": make_record(("<script>alert(1)</script>", "x" * 200, "犬 " * 60), names="y" * 300),
    "many": make_record(tuple(f"{'long name ' * 3}{i}" for i in range(300)), layers=49),
    "bare": make_record(tuple(f"class_{i}" for i in range(31)), labelled=False, before=False),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_stand_alone_and_fit(browser: Any, tmp_path: Path, name: str, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(PAGES[name], **make_files(PAGES[name])), encoding="utf-8")
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("performance", "browser"):
        browser.get_log(log)  # what other pages left
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    assert requested(browser) == {path.as_uri()}
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    images = browser.execute_script(
        "return [...document.images].map(i => [i.alt, i.complete && i.naturalWidth, i.currentSrc])"
    )
    assert len(images) > 30
    assert all(alt.strip() and width for alt, width, _ in images)
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 22, 26)") == (scheme == "dark")


def open_page(browser: Any, path: Path, name: str = "bare", **more: Any) -> None:
    path.write_text(render(PAGES[name], **make_files(PAGES[name]) | more), encoding="utf-8")
    browser.get(path.as_uri())


@pytest.mark.parametrize("name", PAGES)
def test_all_images_of_the_least_certain_load(browser: Any, tmp_path: Path, name: str) -> None:
    open_page(browser, tmp_path / "report.html", name)
    widths = browser.execute_script(
        "return [...document.querySelectorAll('#uncertain img')].map(i => i.naturalWidth)"
    )
    assert widths == [8] * (36 if name == "bare" else 24)


@pytest.fixture
def without_clipboard(browser: Any) -> Iterator[None]:
    """Pages find no `navigator.clipboard`, as in an old browser."""
    script = "Object.defineProperty(Navigator.prototype, 'clipboard', {value: undefined})"
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = browser.execute_cdp_cmd(command, {"source": script})
    yield
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def copy_each(browser: Any) -> list[str]:
    """Returns what is pasted after a click on each button, which says what it did."""
    from selenium.webdriver import ActionChains, Keys

    browser.execute_script("document.body.prepend(document.createElement('textarea'))")
    browser.execute_script("window.setTimeout = () => 0")  # a button keeps what it says
    field = browser.find_element("css selector", "textarea")
    pasted = []
    for button in browser.find_elements("css selector", "button.copy"):
        button.click()
        wait(browser, "return arguments[0].textContent === 'Copied'", button)
        field.clear()
        field.click()
        ActionChains(browser).key_down(Keys.CONTROL).send_keys("v").key_up(Keys.CONTROL).perform()
        wait(browser, "return arguments[0].value !== ''", field)
        pasted.append(field.get_property("value"))
    return pasted


def wait(browser: Any, script: str, element: Any) -> None:
    """Wait until a script says so; the browser may be busy."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20).until(lambda _: browser.execute_script(script, element))


def assert_copied(browser: Any, tmp_path: Path) -> None:
    folder = Path("runs/a <b>run's folder")
    open_page(browser, tmp_path / "report.html", folder=folder)
    run = shlex.quote(str(folder))
    assert copy_each(browser) == [
        f"dial label {run}",
        f"dial predict {run} IMAGES",
        f"dial export {run} model.onnx",
        f"dial adapt --from {run} NEW_IMAGES --out NEW",
        f"dial adapt --config {shlex.quote(str(folder / 'config.json'))} --out NEW",
    ]


def test_buttons_copy_the_lines_beside_them(browser: Any, tmp_path: Path) -> None:
    assert_copied(browser, tmp_path)
    assert browser.execute_script("return navigator.clipboard !== undefined")


@pytest.mark.usefixtures("without_clipboard")
def test_buttons_copy_without_a_clipboard(browser: Any, tmp_path: Path) -> None:
    assert_copied(browser, tmp_path)
    assert browser.execute_script("return navigator.clipboard === undefined")


def test_lines_are_there_without_scripts_and_buttons_are_not(browser: Any, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, tmp_path / "report.html")
        lines = browser.find_elements("css selector", ".line code")
        assert lines[0].text == "dial label runs/one"
        buttons = browser.find_elements("css selector", "button.copy")
        assert len(buttons) == len(lines) == 5
        assert not any(button.is_displayed() for button in buttons)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_no_other_script_runs(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    text = render(PAGES["bare"], **make_files(PAGES["bare"]))
    path.write_text(text.replace("</main>", "<script>document.title = 'ran'</script></main>"))
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert browser.title == "dial: photos → drawings"
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]
