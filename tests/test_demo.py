"""The demo: three runs, a table, a page, and what to do next."""

from functools import partial
from pathlib import Path

import pytest

from dial import demo as demonstration
from dial import pipeline as adaptation


@pytest.mark.usefixtures("few_digits")
def test_it_ends_with_a_page_and_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demonstration, "adapt", partial(adaptation.adapt, steps=2))
    runs = demonstration.demonstrate(out=tmp_path, quiet=True)
    assert [run.result["method"] for run in runs] == ["source_only", "adabn", "dial"]
    told = capsys.readouterr().out
    assert "target accuracy" in told
    page = tmp_path / "dial" / "report.html"
    assert str(page) in told.replace("\n", "")
    assert "another run on the same images: source_only, seed 0" in page.read_text()
    for command in ("check SOURCE TARGET", "adapt SOURCE TARGET --out RUN", "predict RUN IMAGES"):
        assert f"dial {command}" in told
