"""The page about a run: valid for any names and sizes, self-contained, honest about labels."""

import base64
import hashlib
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dial.reporting import plots
from dial.reporting.drawing import Picture
from dial.reporting.page import render
from dial.reporting.record import Record

from .pages import make_files, make_record


@pytest.fixture(scope="module", autouse=True)
def _drawn_once() -> Iterator[None]:
    """A picture that several pages have is drawn once: that is nearly all of a page's time."""
    drawn: dict[bytes, Picture] = {}

    def once(draw: Callable[..., Picture]) -> Callable[..., Picture]:
        def look_up(*args: Any, **kwargs: Any) -> Picture:
            key = pickle.dumps((draw.__name__, args, kwargs))
            if key not in drawn:
                drawn[key] = draw(*args, **kwargs)
            return drawn[key]

        return look_up

    with pytest.MonkeyPatch.context() as patch:
        for name in ("curves", "distances", "mixing", "embedding", "matrix", "balance"):
            patch.setattr(plots, name, once(getattr(plots, name)))
        yield


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
    assert page.all("script") == [{}]  # the page's own, and no other may run
    script = files("dial.reporting").joinpath("report.js").read_text(encoding="utf-8")
    assert text.count(f"<script>{script}</script>") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f"default-src 'none'; {allowed}" in text
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
        "result", "missing_or_confused", "next", "accuracy", "training", "shift", "features",
        "classes", "gallery", "uncertain", "balance", "settings",
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
    assert "no normalization layers to measure at" in render(record, **records)


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
    command = "dial adapt --config runs/one/config.json --out NEW"
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
    assert "seems to have no images of: &lt;b&gt;pen." in text
    assert 'id="candidates"' not in page_of(record)


@pytest.mark.parametrize("accuracy", [0.5, None])
def test_why_a_candidate_was_kept_is_said_and_true_accuracies_are_for_comparison(
    accuracy: float | None,
) -> None:
    record = make_record(labelled=accuracy is not None)
    scores = {"frozen": 0.7, "<i>own": 0.8}
    found = [{"name": n, "score": s, "target_accuracy": accuracy} for n, s in scores.items()]
    more = {"candidates": found, "predictor": "<i>own", "absent_classes": []}
    text = page_of(record, result=make_files(record)["result"] | more)
    assert "“&lt;i&gt;own” was kept because the largest share of nearest neighbors" in text
    assert re.search("agrees with its predictions: 80.0.%, against 70.0.% for “frozen”", text)
    assert ("true accuracy,<br>for comparison" in text) == (accuracy is not None)
    assert ("labels, which had no part in this" in text) == (accuracy is not None)
    assert text.index("<strong>&lt;i&gt;own (kept)</strong>") < text.index("<td>frozen</td>")


def test_one_candidate_is_no_choice() -> None:
    record = make_record()
    one = {"candidates": [{"name": "frozen", "score": 0.7, "target_accuracy": 0.5}]}
    result = make_files(record)["result"] | one | {"predictor": "frozen", "absent_classes": []}
    assert 'id="candidates"' not in page_of(record, result=result)


def section(text: str, name: str) -> str:
    return text.partition(f'<section id="{name}"')[2].partition("</section>")[0]


def cards(text: str) -> list[str]:
    return re.findall(r"<li>(.*?)</li>", text, re.DOTALL)


@pytest.mark.parametrize("before", [True, False])
def test_the_least_certain_images_come_with_their_runners_up(before: bool) -> None:
    record = make_record(("mug", "<b>pen", "cup"), images=90, before=before)
    assert record.runner_up is not None
    assert record.runner_up_confidence is not None
    first, second = record.confidence["after"], record.runner_up_confidence
    kept = [int(row) for row in record.gallery_names]
    wanted = sorted(kept, key=lambda row: first[row] - second[row])[: 24 if before else 36]
    text = page_of(record)
    found = cards(section(text, "uncertain"))
    assert ('id="gallery"' in text) == before
    assert len(found) == len(wanted)
    escaped = [name.replace("<", "&lt;").replace(">", "&gt;") for name in record.classes]
    for card, row in zip(found, wanted, strict=True):
        likeliest, other = (
            escaped[rows[row]] for rows in (record.predicted["after"], record.runner_up)
        )
        shown = re.sub(r"<[^>]*>|\s", " ", card)
        both = f"{likeliest} ({100 * first[row]:.0f} %) or {other} ({100 * second[row]:.0f} %)"
        assert both in " ".join(shown.split())
        assert record.gallery_names[str(row)] in card


def test_older_records_and_a_single_class_have_no_runners_up() -> None:
    old = replace(make_record(), runner_up=None, runner_up_confidence=None)
    for record in (old, make_record(("mug",))):
        text = page_of(record)
        rows = [int(row) for row in record.gallery_names]
        wanted = sorted(rows, key=lambda row: record.confidence["after"][row])[:24]
        found = cards(section(text, "uncertain"))
        names = [re.findall(r'<small class="name" title="(.*?)">', card)[0] for card in found]
        assert names == [record.gallery_names[str(row)] for row in wanted]
        assert "least confident predictions" in text
        assert ">or " not in text
        assert 'id="missing_or_confused"' not in text


def test_missing_and_confused_classes_are_told_in_words() -> None:
    record = make_record(("mug", "<b>pen", "cup"), labelled=False)
    after = np.repeat([0, 2], [40, 80])
    record = replace(
        record,
        source_counts=np.array([30, 30, 30]),
        predicted=record.predicted | {"after": after},
        confidence=record.confidence | {"after": np.full(120, 0.5)},
        runner_up=np.where(after == 0, 1, 0),
        runner_up_confidence=np.where(np.arange(120) < 12, 0.4, 0.1),
    )
    said = cards(section(page_of(record), "missing_or_confused"))
    nearly = "Images predicted as mug are often nearly predicted as &lt;b&gt;pen (12 of 40)."
    assert said == ["No image is predicted as: &lt;b&gt;pen.", nearly]
    result = make_files(record)["result"] | {"absent_classes": ["<b>pen"]}
    said = cards(section(page_of(record, result=result), "missing_or_confused"))
    assert said == ["The target seems to have no images of: &lt;b&gt;pen.", nearly]


def test_where_no_class_stands_out_one_sentence_says_so() -> None:
    record = replace(make_record(), source_counts=np.array([9, 9]))
    said = section(page_of(record), "missing_or_confused")
    assert "Nothing stands out" in said
    assert "<li>" not in said


INTERVAL = {"estimated_accuracy": 0.9312, "estimated_interval": [0.84, 0.968]}
NO_REASON = {"estimated_accuracy": 0.9312, "estimated_interval": None}


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (INTERVAL, "estimated without labels: between 84.% and 97.%"),
        (NO_REASON | {"no_estimate": "<b> too few"}, "without labels: &lt;b&gt; too few."),
        ({"no_estimate": "too few"}, "no estimate of the accuracy without labels: too few."),
        (NO_REASON, "There is no estimate of the accuracy without labels."),
    ],
)
def test_the_estimate_is_an_interval_or_a_reason_and_never_a_number(
    entries: dict[str, Any], said: str, labelled: bool
) -> None:
    record = make_record(labelled=labelled)
    text = section(page_of(record, result=make_files(record)["result"] | entries), "result")
    assert re.search(said, text)
    assert "93" not in re.findall(r"<b>(.*?)</b>", text)
    assert not re.search(r"93(\.\d)?.%", text)
    tiles = re.findall(r'class="tile( main)?"><b>(.*?)</b>', text)
    interval = [main for main, value in tiles if re.fullmatch("84.97.%", value)]
    assert interval == ([" main" * (not labelled)] if entries is INTERVAL else [])
    assert sum(main != "" for main, _ in tiles) == 1


@pytest.mark.parametrize("doubt", [True, False])
def test_older_runs_show_the_number_that_they_have(doubt: bool) -> None:
    record = make_record()
    entries: dict[str, Any] = {"estimated_accuracy": 0.9312}
    entries |= {"estimate_doubt": "it rests on <b>"} if doubt else {}
    text = section(page_of(record, result=make_files(record)["result"] | entries), "result")
    assert re.search("<b>93.%</b><span>estimated accuracy", text)
    assert ("And here it rests on &lt;b&gt;." in text) == doubt
    assert ("unreliable here" in text) == doubt


def test_a_run_that_was_not_judged_says_nothing_of_an_estimate() -> None:
    record = make_record()
    result = make_files(record)["result"]
    for entries in ({}, {"estimated_accuracy": None}):
        assert "estimate" not in section(page_of(record, result=result | entries), "result")


@pytest.mark.parametrize("labelled", [True, False])
def test_what_to_do_next_names_the_run_as_a_shell_wants_it(labelled: bool) -> None:
    record = make_record(labelled=labelled)
    text = section(page_of(record, folder=Path("my <b>run")), "next")
    lines = re.findall(r"<code>(.*?)</code><button type=\"button\" class=\"copy\" hidden>", text)
    run = "&#39;my &lt;b&gt;run&#39;"
    measure = [] if labelled else [f"dial label {run}"]
    assert lines == [
        *measure,
        f"dial predict {run} IMAGES",
        f"dial export {run} model.onnx",
        f"dial adapt --from {run} NEW_IMAGES --out NEW",
    ]


def test_places_of_the_machine_are_shown_by_their_last_part() -> None:
    records = make_files(make_record())
    records["folder"] = Path("/home/zqx/one")
    records["result"] |= {"source": "/home/zqx/photos + ~zqx/b", "target": "../zqx/scans"}
    settings = records["config"]["settings"] | {"weights": "C:\\zqx\\net.pth"}
    text = render(make_record(), **records | {"config": records["config"] | {"settings": settings}})
    assert "zqx" not in text
    assert "<h1>photos + b → scans</h1>" in text
    assert "dial predict one IMAGES" in text
    assert "dial adapt --config one/config.json --out NEW" in text
    assert "The lines are for the folder that holds one:" in text
    assert "<dd>net.pth</dd>" in text
    assert "The lines are for the folder" not in page_of(make_record())


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
