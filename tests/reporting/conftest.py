"""Chromium, where there is one, for pages as people meet them."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser without a window, with logs of its console and of its requests."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.get("about:blank")  # or its own first page still asks for its parts in the first test
    yield started
    started.quit()


def requested(browser: Any) -> set[str]:
    """Returns the addresses that pages asked for, but for data within them."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    return {url for url in urls if not url.startswith("data:")}
