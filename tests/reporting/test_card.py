"""The model card: what a run's files say, read by the hub's own parser and as Markdown."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from dial import DialError, Run
from dial.reporting import card

from .pages import make_files, make_record

ODD = (
    "<script>alert(1)</script>", "a|b", "*x* _y_ `z`", "[a](https://b.c)", "![i](u)", "# h",
    "&amp;", "---", "1. x", "$$", "~~s~~", "back\\slash", "Füße", "\U0001f600",
)  # fmt: skip


def save(folder: Path, *, classes: tuple[str, ...] = ("mug", "pen"), **more: Any) -> Path:
    """A run's folder with what a card needs; `more` goes into its result."""
    written = make_files(make_record(classes))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(written["config"]))
    result = written["result"] | {"warnings": []} | more
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "metrics.jsonl").touch()
    return folder


def change_config(folder: Path, **more: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def rendered(text: str) -> str:
    """The card's body as HTML, of a renderer that lets raw HTML through."""
    body = ModelCard(text, ignore_metadata_errors=False).text
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(body))


@pytest.mark.parametrize("hub", [False, True])
def test_the_hub_reads_its_header(tmp_path: Path, hub: bool) -> None:
    text = card.render(save(tmp_path / "run"), hub=hub)
    data = ModelCard(text, ignore_metadata_errors=False).data
    assert data.library_name == ("timm" if hub else "dial")
    assert data.pipeline_tag == "image-classification"
    assert {"image-classification", "domain-adaptation"} <= {*data.tags}
    assert ("timm" in data.tags) == hub == ("timm.create_model" in text)
    assert data.license is None
    assert ("dial.runs.load" in text) == (not hub)


def test_what_was_measured_and_on_what(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", target_accuracy=0.8125, source_images=1234)
    text = card.render(folder)
    assert "81.2 % of the images of drawings that have labels" in text
    assert "scored with\nthe target's labels" in text
    assert "oracle for this figure only" in text
    assert "| source | photos, 1,234 images |" in text
    assert "| target | drawings, 120 images |" in text
    assert "outputs: mug, pen.\n" in text
    assert "The run gave none." in text
    assert "`dial check --from RUN IMAGES`" in text
    change_config(folder, input={"labelled": "/home/ada/some.csv"})
    text = card.render(folder)
    assert "took part in training and are not scored" in text
    assert "oracle" not in text
    assert "/home" not in text


def test_an_estimate_is_an_interval_and_its_absence_has_a_reason(tmp_path: Path) -> None:
    estimated = {"target_accuracy": None, "estimated_interval": [0.61, 0.784]}
    text = card.render(save(tmp_path / "a", **estimated, estimate_doubt="It is a guess."))
    assert "Estimated without labels: 61 % to\n78 %" in text
    assert "About the estimate: It is a guess." in text
    assert "dial label RUN" in text
    without = {"target_accuracy": None, "estimated_interval": None, "no_estimate": "too few"}
    text = card.render(save(tmp_path / "b", **without))
    assert "There is no estimate: too few." in text


def test_warnings_and_absent_classes_are_told(tmp_path: Path) -> None:
    text = card.render(save(tmp_path / "run", warnings=["it | hurts"], absent_classes=["pen"]))
    assert "- The run warned: it \\| hurts\n" in text
    assert "seems to have no images of pen," in text
    assert "gave none" not in text


def test_a_run_from_before_has_a_card(tmp_path: Path) -> None:
    folder = save(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    del result["warnings"]
    (folder / "result.json").write_text(json.dumps(result))
    assert "The run was not checked for any." in card.render(folder)


def test_going_on_from_a_finished_model(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", source="/home/ada/old", source_images=None)
    change_config(folder, **{"from": "0123"})
    text = card.render(folder)
    assert "It goes on from the finished model old, and was adapted\n" in text
    assert "| adapted from | old |" in text


@pytest.mark.parametrize("hub", [False, True])
def test_names_are_shown_as_they_are(tmp_path: Path, hub: bool) -> None:
    for number, odd in enumerate(ODD):
        classes = (odd, "pen", f"{odd}\n# line")
        folder = save(tmp_path / str(number), classes=classes, target=odd, warnings=[odd])
        page = rendered(card.render(folder, hub=hub))
        plain = rendered(card.render(save(tmp_path / f"{number} plain"), hub=hub))
        shown = re.sub(r"<[^>]*>", "", page)
        assert f"outputs: {html.escape(odd)}, pen, {html.escape(odd)}\ufffd# line." in shown
        tags, others = (re.findall(r"<(\w+)", text) for text in (page, plain))
        assert set(tags) == set(others) | {"ul", "li"}  # no markup that was not there


def test_a_thousand_classes_are_not_all_listed(tmp_path: Path) -> None:
    classes = tuple(f"c{number}" for number in range(1000))
    text = card.render(save(tmp_path / "run", classes=classes))
    assert "| classes | 1000 |" in text
    assert "c99, and 900 more." in text
    assert "c100" not in text


def test_a_network_of_ones_own_has_to_be_given_again(tmp_path: Path) -> None:
    text = card.render(save(tmp_path / "run", backbone="object:Net"))
    assert 'dial.runs.load("RUN", backbone=network)' in text
    assert "dial predict" not in text


def test_every_finished_run_has_one(finished: Run) -> None:
    text = (finished.folder / card.NAME).read_text(encoding="utf-8")
    assert text == card.render(finished.folder)
    assert "| source | bright, 33 images |" in text
    assert "| target | dark, 33 images |" in text
    assert str(finished.folder.parent) not in text


def test_no_run_no_card(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"a finished run in .* no run there"):
        card.write(tmp_path)
