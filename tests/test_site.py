"""The documentation builds as a site that loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOADED = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?https?:|<link[^>]+stylesheet[^>]+https?:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="the site's tools are not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)  # strict: a dead link ends it
    return folder


def test_pages_outside_docs_are_in_the_site_and_linked(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    for page in ("your-own-data.html", "SECURITY.html", "CITATION.cff", "results/peers.html"):
        assert (site / page).is_file()
        assert f'href="{page}"' in start
    back = (site / "results" / "heads.html").read_text(encoding="utf-8")
    assert 'href="../mathematics.html#the-head"' in back


def test_the_reference_has_docstrings_and_doctests_as_code(site: Path) -> None:
    page = (site / "python.html").read_text(encoding="utf-8")
    assert 'id="dial.losses.entropy"' in page
    assert "Train a classifier on the source that works on the target." in page
    assert "<blockquote>" not in page


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page for page in pages if LOADED.search(page.read_text(encoding="utf-8"))]
