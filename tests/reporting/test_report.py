"""The page about a run: sound for any names and sizes, alone on the disk, honest about labels."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import dial
from dial import DialError
from dial.cli import app
from dial.reporting import evidence, report
from dial.reporting.evidence import Evidence

from .pages import make_evidence, make_records


class Page(HTMLParser):
    """Elements with their attributes, and whether every one that opens also closes."""

    VOID = ("meta", "link", "img", "source", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(found: Evidence, **records: Any) -> str:
    text = report.render(found, **make_records(found) | records)
    page = Page(text)
    assert page.all("script") == []
    for attributes in (attributes for _, attributes in page.elements):
        for name in ("src", "href", "srcset"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"url\(|@import|https?://", text)
    assert all((image["alt"] or "").strip() for image in page.all("img"))
    return text


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("count", [2, 300])
def test_pages_of_all_kinds(labelled: bool, before: bool, count: int) -> None:
    classes = tuple(f"class {i}" for i in range(count))
    text = page_of(make_evidence(classes, labelled=labelled, before=before))
    assert ("get another label than without adaptation" in text) == before
    assert ("has no labels" in text) != labelled
    assert ("for this score only, never in training" in text) == labelled
    assert ("class 299" in text) == (count == 300)
    assert ("<details open>" in text) == (count == 2)


def test_parts_come_in_the_order_of_their_weight() -> None:
    sections = re.findall(r'<section id="(\w+)"', page_of(make_evidence()))
    assert sections == [
        "result", "accuracy", "training", "shift", "features", "classes", "gallery", "balance",
        "settings",
    ]  # fmt: skip


def test_hostile_names_stay_names() -> None:
    classes = ("<script>alert(1)</script>", '"><img src=x>', "$\\frac{犬}", "x" * 200, "\x1b\udc80")
    found = make_evidence(classes, names="<img src=http:x onerror=alert(1)>")
    records = make_records(found)
    records["result"] |= {"source": "<b>{{ 7 * 7 }}", "target": "</title><script>"}
    records["config"] |= {"source": "a'; rm -rf ~"}
    text = page_of(found, **records)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "{{ 7 * 7 }}" in text
    text.encode()


def test_networks_without_norms_and_runs_of_one_epoch() -> None:
    found = make_evidence(layers=0)
    records = make_records(found, epochs=1)
    assert "no normalisation layers to measure at" in report.render(found, **records)


def test_what_was_not_adapted_says_so() -> None:
    found = make_evidence(before=False)
    object.__setattr__(found, "adapts", False)
    assert "Nothing was adapted" in page_of(found)


def save(folder: Path, found: Evidence) -> Path:
    folder.mkdir()
    records = make_records(found)
    (folder / "config.json").write_text(json.dumps(records["config"]))
    (folder / "result.json").write_text(json.dumps(records["result"]))
    lines = [json.dumps(line) for line in records["history"]]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    evidence.save(folder / evidence.NAME, found)
    return folder


def test_written_into_the_run_or_elsewhere_alone_or_against_a_baseline(tmp_path: Path) -> None:
    run = save(tmp_path / "run", make_evidence())
    baseline = save(tmp_path / "baseline", make_evidence(seed=1, before=False))
    assert report.write(run) == run / "report.html"
    assert "the source&#39;s statistics in its DA-layers." in (run / "report.html").read_text()
    path = report.write(run, out=tmp_path / "page.html", baseline=baseline)
    assert path == tmp_path / "page.html"
    assert "is another run on the same images: dial, seed 0." in path.read_text()
    assert path.read_bytes() == report.write(run, out=path, baseline=baseline).read_bytes()


def test_the_command_tells_where_the_page_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save(tmp_path / "run", make_evidence())
    app(["report", str(run), "--baseline", str(run)], standalone_mode=False)
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"


def test_runs_that_cannot_be_told_about(tmp_path: Path) -> None:
    with pytest.raises(DialError, match="got no run there"):
        report.write(tmp_path / "nowhere")
    run = save(tmp_path / "run", make_evidence())
    (run / evidence.NAME).unlink()
    with pytest.raises(DialError, match=r"the evidence for a report in .*, got none"):
        report.write(run)
    (run / "result.json").unlink()
    with pytest.raises(DialError, match="one that is not finished; fix: finish it with"):
        report.write(run)


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
    assert "--steps 2 --seed 0 --unlabelled" in text
    assert "1,797" in text
    assert report.write(run.folder).read_text(encoding="utf-8") == text


def test_how_a_setting_was_chosen() -> None:
    found = make_evidence()
    result = make_records(found)["result"]
    assert "was chosen" not in page_of(found, result=result)
    trials = [
        {"entropy": 0.0, "score": 0.51234, "outcome": "stopped at epoch 2", "seconds": 3.2},
        {"entropy": 0.1, "score": 0.81234, "outcome": "chosen", "seconds": 5.0},
        {"entropy": 1.0, "score": None, "outcome": "failed", "seconds": None},
    ]
    chosen = {"entropy": 0.1, "validator": "information_maximisation"}
    told = {"chosen": chosen, "trials": trials, "warnings": ["adaptation seems to hurt: <b>"]}
    text = page_of(found, result=result | told)
    assert "How entropy was chosen" in text
    assert "<tr><td>0.1</td><td>0.8123</td><td>chosen</td><td>5</td></tr>" in text
    assert "stopped at epoch 2" in text
    assert "adaptation seems to hurt: &lt;b&gt;" in text
