"""The page about a run: valid for any names and sizes, self-contained, honest about labels."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from dial.reporting.page import render
from dial.reporting.record import Record

from .pages import make_files, make_record


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


def page_of(record: Record, **records: Any) -> str:
    text = render(record, **make_files(record) | records)
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
    text = page_of(make_record(classes, labelled=labelled, before=before))
    assert ("get another label than without adaptation" in text) == before
    assert ("has no labels" in text) != labelled
    assert ("for this score only, never in training" in text) == labelled
    assert ("class 299" in text) == (count == 300)
    assert ("<details open>" in text) == (count == 2)


def test_parts_come_in_the_order_of_their_weight() -> None:
    sections = re.findall(r'<section id="(\w+)"', page_of(make_record()))
    assert sections == [
        "result", "accuracy", "training", "shift", "features", "classes", "gallery", "balance",
        "settings",
    ]  # fmt: skip


def test_hostile_names_stay_names() -> None:
    classes = ("<script>alert(1)</script>", '"><img src=x>', "$\\frac{犬}", "x" * 200, "\x1b\udc80")
    record = make_record(classes, names="<img src=http:x onerror=alert(1)>")
    records = make_files(record)
    records["result"] |= {"source": "<b>{{ 7 * 7 }}", "target": "</title><script>"}
    records["config"] |= {"source": "a'; rm -rf ~"}
    text = page_of(record, **records)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "{{ 7 * 7 }}" in text
    text.encode()


def test_networks_without_norms_and_runs_of_one_epoch() -> None:
    record = make_record(layers=0)
    records = make_files(record, epochs=1)
    assert "no normalisation layers to measure at" in render(record, **records)


def test_what_was_not_adapted_says_so() -> None:
    record = replace(make_record(before=False), adapts=False)
    assert "Nothing was adapted" in page_of(record)


def test_how_a_setting_was_chosen() -> None:
    record = make_record()
    result = make_files(record)["result"]
    assert "was chosen" not in page_of(record, result=result)
    trials = [
        {"entropy": 0.0, "score": 0.51234, "outcome": "stopped at epoch 2", "seconds": 3.2},
        {"entropy": 0.1, "score": 0.81234, "outcome": "chosen", "seconds": 5.0},
        {"entropy": 1.0, "score": None, "outcome": "failed", "seconds": None},
    ]
    chosen = {"entropy": 0.1, "validator": "information_maximisation"}
    search = {"chosen": chosen, "trials": trials, "warnings": ["adaptation seems to hurt: <b>"]}
    text = page_of(record, result=result | search)
    assert "How entropy was chosen" in text
    assert "<tr><td>0.1</td><td>0.8123</td><td>chosen</td><td>5</td></tr>" in text
    assert "stopped at epoch 2" in text
    assert "adaptation seems to hurt: &lt;b&gt;" in text


def test_the_run_can_be_repeated() -> None:
    command = "dial adapt --config RUN/config.json --out NEW"
    assert f"<code>{command}</code>" in page_of(make_record())


def test_all_settings_with_a_value_are_listed() -> None:
    record = make_record()
    config = make_files(record)["config"]
    own = {"entropy": 0.3, "momentum": 0.7, "warmup": None}
    settings = config["settings"] | {"epochs": 3, "steps": None, "momentum": 0.9, "options": own}

    def listed(**changes: Any) -> list[tuple[str, str]]:
        text = page_of(record, config=config | {"settings": settings | changes})
        return re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)

    pairs = listed()
    assert {("epochs", "3"), ("momentum", "0.9"), ("momentum", "0.7"), ("entropy", "0.3")} <= {
        *pairs
    }
    names = [name for name, _ in pairs]
    assert "warmup" not in names
    assert "steps" not in names
    assert all(k.replace("_", " ") in names for k, v in settings.items() if v and k != "options")
    assert ("steps", "20") in listed(steps=20)
    assert "epochs" not in dict(listed(steps=20))


def test_candidates_and_absent_classes_are_shown_with_names_escaped() -> None:
    record = make_record(("mug", "<b>pen"))
    files = make_files(record)
    named = [("frozen", 0.7, 0.5), ("head", 0.8, 0.6)]
    found = [dict(zip(("name", "score", "target_accuracy"), each, strict=True)) for each in named]
    more = {"candidates": found, "predictor": "head", "absent_classes": ["<b>pen"]}
    text = page_of(record, result=files["result"] | more)
    assert "<strong>head (kept)</strong>" in text
    assert re.search(r"<td>frozen</td><td>70(\.0)?.%</td><td>50(\.0)?.%</td>", text)
    assert "seems to have no images of &lt;b&gt;pen" in text
    assert 'id="candidates"' not in page_of(record)


@pytest.mark.parametrize("count", [1, 4, 40])
def test_what_the_layers_learned_to_share_is_shown(count: int) -> None:
    record = make_record()
    result = make_files(record)["result"]
    weights = {f"<b>block{i}": 1 - i / 80 for i in range(count)}
    text = page_of(record, result=result | {"mixing": weights})
    assert 'id="mixing"' in text
    last = f"<td>&lt;b&gt;block{count - 1}</td><td>{1 - (count - 1) / 80:.4f}</td>"
    assert last in text
    assert f"on average over {count} layers, least at" in text
    assert 'id="mixing"' not in page_of(record)


def test_a_term_that_comes_later_is_drawn_and_nothing_without_training() -> None:
    record = make_record()
    history = make_files(record)["history"]
    history[-1]["labels"] = 0.25
    assert "labels goes from 0.25 at epoch 3" in page_of(record, history=history)
    assert "Nothing was trained" in page_of(record, history=[])
