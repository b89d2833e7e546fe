"""The report as a file: from a folder or a run, alone or against a baseline, and its errors."""

import json
import re
import sys
from pathlib import Path

import pytest

import dial
from dial import DialError
from dial.cli import app
from dial.reporting import record as records
from dial.reporting.record import Record

from .pages import make_files, make_record


def save(folder: Path, record: Record) -> Path:
    folder.mkdir()
    written = make_files(record)
    (folder / "config.json").write_text(json.dumps(written["config"]))
    (folder / "result.json").write_text(json.dumps(written["result"]))
    lines = [json.dumps(line) for line in written["history"]]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    records.save(folder / records.NAME, record)
    return folder


def test_written_into_the_run_or_elsewhere_alone_or_against_a_baseline(tmp_path: Path) -> None:
    run = save(tmp_path / "run", make_record())
    baseline = save(tmp_path / "baseline", make_record(seed=1, before=False))
    assert dial.report(run) == run / "report.html"
    assert "the source&#39;s statistics in its DA-layers." in (run / "report.html").read_text()
    path = dial.report(run, out=tmp_path / "page.html", baseline=baseline)
    assert path == tmp_path / "page.html"
    assert "is another run on the same images: dial, seed 0." in path.read_text()
    assert path.read_bytes() == dial.report(run, out=path, baseline=baseline).read_bytes()


def test_the_command_prints_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save(tmp_path / "run", make_record())
    app(["report", str(run), "--baseline", str(run)], standalone_mode=False)
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"


def test_runs_without_a_report(tmp_path: Path) -> None:
    with pytest.raises(DialError, match="got no run there"):
        dial.report(tmp_path / "nowhere")
    run = save(tmp_path / "run", make_record())
    (run / records.NAME).unlink()
    with pytest.raises(DialError, match=r"the evidence for a report in .*, got none"):
        dial.report(run)
    (run / "result.json").unlink()
    with pytest.raises(DialError, match="one that is not finished; fix: finish it with"):
        dial.report(run)


@pytest.mark.parametrize("package", ["jinja2", "matplotlib", "sklearn"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = save(tmp_path / "run", make_record())
    for name in list(sys.modules):
        if name.split(".")[0] == package or name.startswith("dial.reporting."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DialError, match=rf'package {package}.*pip install "dial-da\[report\]"'):
        dial.report(run)
    assert not (run / "report.html").exists()


@pytest.mark.usefixtures("few_digits")
def test_a_real_run_without_labels_has_a_page(tmp_path: Path) -> None:
    run = dial.adapt(
        "digits:mnist",
        "digits:optdigits",
        out=tmp_path / "run",
        steps=2,
        quiet=True,
        unlabelled=True,
    )
    text = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "The target has no labels" in text
    assert "<code>dial adapt --config run/config.json --out NEW<" in text
    assert "<code>dial label run<" in text
    assert "<dt>steps</dt><dd>2</dd>" in text
    assert "<dt>seed</dt><dd>0</dd>" in text
    assert "<dt>epochs</dt>" not in text
    assert re.search(r"\b180\b</strong> target images|of 180 target images", text)
    assert dial.report(run.folder).read_text(encoding="utf-8") == text
    assert dial.report(run, tmp_path / "page.html").read_text(encoding="utf-8") == text
