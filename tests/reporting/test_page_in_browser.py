"""The page in a real browser: no error, no request, no overflow on a phone, in light and dark."""

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
