"""What is said about accuracy without labels: the interval, why there is none, and warnings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dial
from dial.selection import accuracy, estimators
from dial.selection.neighborhood import Neighborhood
from dial.selection.outputs import Outputs

from ..conftest import SETTINGS
from .validators.small import make

CLASSES = ["a", "b", "c", "d"]


def judge(outputs: Outputs) -> dict[str, Any]:
    return accuracy.judge(outputs, classes=CLASSES)


def supported(share: float, *, images: int = 1000, seed: int = 0) -> Outputs:
    """Predictions of which a share has neighbors of the same label."""
    random = np.random.default_rng(seed)
    predicted = random.integers(0, 4, images)
    asked = np.where(np.arange(images) < share * images, predicted, (predicted + 1) % 4)
    own = np.arange(40) % 4
    around = Neighborhood(np.repeat(asked[:, None], 5, 1), np.repeat(own[:, None], 5, 1), own)
    outputs = make()
    logits = np.eye(4, dtype=np.float32)[predicted]
    target = replace(outputs.target, logits=logits, features=np.zeros((images, 6), np.float32))
    return replace(outputs, target=target, before=around, held_out=None)


def test_the_interval_is_around_the_estimate() -> None:
    found = judge(supported(0.9, images=100_000))
    assert found["estimated_accuracy"] == pytest.approx(0.9)
    below, above = accuracy.MARGINS
    low, high = found["estimated_interval"]
    assert low == pytest.approx(0.9 - below, abs=1e-4)
    assert high == pytest.approx(0.9 + above, abs=1e-4)
    assert "no_estimate" not in found


def test_few_images_widen_it_until_nothing_is_shown() -> None:
    many, fewer, few = (judge(supported(0.7, images=n)) for n in (100_000, 2000, 40))
    widths = [np.diff(each["estimated_interval"])[0] for each in (many, fewer)]
    assert widths[0] < widths[1] < accuracy.WIDEST
    assert few["estimated_accuracy"] is None
    assert few["estimated_interval"] is None
    assert few["no_estimate"].startswith("40 images are too few: it could be anything from ")


def test_signs_that_disagree_give_no_number() -> None:
    outputs = make(shift=0.0)  # the finished network's neighbors support nearly all
    around = supported(0.4, images=70).before
    assert around is not None
    assert estimators.ESTIMATORS.create("neighbors").estimate(outputs) > 0.9
    doubtful = judge(replace(outputs, before=around))
    assert doubtful["estimated_interval"] is None
    assert "in the pretrained network and in the trained one" in doubtful["no_estimate"]


def test_reasons() -> None:
    outputs = make()
    assert judge(outputs)["no_estimate"].startswith("a network trained from scratch has only its")
    alone = judge(replace(outputs, training=None))
    assert alone["no_estimate"] == "there are no source images to compare with"
    assert alone["warnings"] == []


def test_a_warning_where_predictions_got_worse() -> None:
    good = make(shift=0.0)
    other = replace(good.target, logits=np.roll(good.target.logits, 7, axis=0))
    better = judge(replace(good, unadapted=other))
    assert better["warnings"] == []
    assert better["comparison"]["support"] > 0.5
    warning = judge(replace(good, target=other, unadapted=good.target))["warnings"][0]
    assert warning.startswith("adaptation seems to hurt: it changed ")
    assert "support the former ones (p = " in warning


def test_a_warning_where_classes_changed_places() -> None:
    outputs = supported(1.0)
    logits = outputs.target.logits[:, [0, 2, 1, 3]]
    (warning,) = judge(replace(outputs, target=replace(outputs.target, logits=logits)))["warnings"]
    assert warning.startswith(
        "adaptation seems to hurt: classes seem to have changed places: "
        "images predicted as b look like c, c look like b in the source ("
    )


def test_a_warning_where_predictions_collapsed() -> None:
    outputs = supported(1.0)
    logits = np.zeros_like(outputs.target.logits)
    logits[:, 3] = 1
    (warning,) = judge(replace(outputs, target=replace(outputs.target, logits=logits)))["warnings"]
    assert warning.startswith(
        "adaptation seems to hurt: the target's predictions have collapsed into 1 of 4 classes"
    )


def test_a_target_with_few_classes_has_not_collapsed() -> None:
    """All predictions are one class, and so are all neighbors."""
    outputs = supported(1.0)
    logits = np.zeros_like(outputs.target.logits)
    logits[:, 3] = 1
    around = outputs.before
    assert around is not None
    around = replace(around, of_target=np.full_like(around.of_target, 3))
    one = replace(outputs, target=replace(outputs.target, logits=logits), before=around)
    assert accuracy.collapse(logits.argmax(1), 4)
    assert judge(one)["warnings"] == []


def test_in_the_result_and_the_report(folders: tuple[Path, Path], tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    settings: dict[str, Any] = SETTINGS | {"epochs": 1, "cache_dir": cache, "report": True}
    run = dial.adapt(*folders, out=tmp_path / "run", **settings)
    assert run.result["estimated_accuracy"] is None
    page = (run.folder / "report.html").read_text()
    assert "no estimate of the accuracy without labels: a network trained from scratch" in page
