"""Labels of the target move nothing but scores; nor do the names and the order of its files.

Each run is made with the target as it is, with its labels shuffled and its files renumbered, and
with neither labels nor the names of its files. All that runs leave must be the same, bit for bit,
but for scores, names and times. A method, validator or estimator is tested by being there.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import dial
from dial import methods
from dial.deployment.runs import Run, TargetRuns
from dial.selection import accuracy, estimators, outputs, tuning, validators
from dial.selection.estimators import ESTIMATORS
from dial.training import budget
from dial.training.budget import Speed

from .conftest import CLASSES, SETTINGS, picture

NETWORK = "timm:test_resnet"
WAYS = ("as it is", "shuffled", "removed")
DOMAINS = ("dark", "turned")
HEAD = {"start": "probe", "head": True, "pseudo_labels": 0.3, "refits": 1}
"""Settings with which `dial` has predictors to choose from."""
FREE = ("target", "seconds", "phases", "input", "execution")
"""Entries that names and times may change; scores are those that begin with target_accuracy."""

Runs = Run | TargetRuns
Make = Callable[[str], Runs]
"""Makes a run, with its targets in one of the ways."""
Setup = Callable[..., Make]


@pytest.fixture(scope="module", autouse=True)
def _every_estimate_is_shown() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "WIDEST", 2.0)  # of few images, too
        yield


@pytest.fixture(scope="module")
def home(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source, the weights of a pretrained network, and two targets in each of the ways."""
    home = tmp_path_factory.mktemp("labels")
    generator = np.random.default_rng(0)
    for number in range(60):  # half of them are held out
        drawn = home / "source" / CLASSES[number % 3] / f"{number}.png"
        drawn.parent.mkdir(parents=True, exist_ok=True)
        picture(drawn.parent.name, generator, dark=False).save(drawn)
    torch.manual_seed(0)
    state = dial.build(NETWORK, num_classes=5, weights="none").state_dict()
    torch.save(state, home / "weights.pth")
    shutil.copytree(folders[1], home / "as it is" / "dark")
    for path in folders[1].rglob("[0-6].png"):
        turned = home / "as it is" / "turned" / path.parent.name / path.name
        turned.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            image.rotate(180).save(turned)
    for domain in DOMAINS:
        files = sorted((home / "as it is" / domain).rglob("*.png"))
        chance = random.Random(domain)
        labels = [path.parent.name for path in files]
        chance.shuffle(labels)
        ranks = chance.sample(range(len(files)), len(files))
        for path, label, rank in zip(files, labels, ranks, strict=True):
            for name in (f"shuffled/{domain}/{label}/{rank}.png", f"removed/{domain}/{rank}-x.png"):
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, home / name)
    (home / "elsewhere").symlink_to(home / "removed" / "dark")
    return home


@pytest.fixture(scope="module")
def setup(home: Path) -> Setup:
    """Returns what makes runs with some settings."""
    numbers = iter(range(1000))

    def with_settings(*, several: bool = False, **given: Any) -> Make:
        options = SETTINGS | {"weights": home / "weights.pth", "holdout": 0.5, "epochs": None}
        options |= {"steps": 3, "batch_size": "6+4", "cache_dir": str(home / "cache")} | given
        source = None if "model" in given else home / "source"

        def make(way: str) -> Runs:
            places = [home / way / domain for domain in DOMAINS]
            alone = home / "elsewhere" if way == "removed" else places[0]
            out = home / f"run{next(numbers)}"
            return dial.adapt(source, places if several else alone, out=out, **options)

        return make

    return with_settings


@pytest.fixture(scope="module")
def finished(setup: Setup) -> Runs:
    """A finished model to go on from."""
    return setup(method="dial", **HEAD)("as it is")


def without_scores(value: Any) -> Any:
    """Returns JSON without what labels, names and times may change, wherever it is."""
    if isinstance(value, dict):
        names = [k for k in value if not (k in FREE or k.startswith("target_accuracy"))]
        return {name: without_scores(value[name]) for name in names}
    return [without_scores(each) for each in value] if isinstance(value, list) else value


def told(folder: Path) -> dict[str, Any]:
    """Returns what a run's files hold, but for what labels, names and times may change."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors" and path.name != "evidence.safetensors":
            found[name] = path.read_bytes()
        elif path.suffix in (".json", ".jsonl"):
            text = path.read_text()
            lines = text.splitlines() if path.suffix == ".jsonl" else [text]
            found[name] = [without_scores(json.loads(line)) for line in lines]
    return found


def check(make: Make) -> list[Runs]:
    """Check that runs are the same in all ways; returns them."""
    made = [make(way) for way in WAYS]
    first, *others = (told(run.folder) for run in made)
    for other in others:
        assert other.keys() == first.keys()
        for name, content in first.items():
            assert other[name] == content, name
    scores = [run.result["target_accuracy"] for run in made]
    assert scores[2] is None
    assert None not in scores[:2]  # labels were there to be seen
    return made


@pytest.mark.parametrize("name", methods.names())
def test_of_every_method(name: str, setup: Setup, finished: Runs) -> None:
    kind = methods.kind(name)
    given: dict[str, Any] = (
        HEAD if name == "dial" else {} if kind.needs_source else {"model": finished.folder}
    )
    if not kind.trains:
        given = given | {"steps": None, "epochs": 1}
    if not kind.needs_source:
        given = given | {"weights": None, "backbone": None, "image_size": None}
    check(setup(method=name, **given))


@pytest.fixture(scope="module")
def judged(setup: Setup) -> list[Runs]:
    """A run with predictors to choose from, in all ways."""
    return check(setup(method="dial", **HEAD))


def test_of_the_choice_and_the_estimate(judged: list[Runs]) -> None:
    result = judged[0].result
    assert len(result["candidates"]) > 1
    assert isinstance(result["estimated_accuracy"], float)
    assert judged[0].result["target_accuracy"] != judged[1].result["target_accuracy"]
    seen = load_file(judged[0].folder / outputs.NAME)
    assert [name for name in seen if "labels" in name and "target" in name] == []


def test_of_the_warnings(setup: Setup) -> None:
    run, *_ = check(setup(method="dial", lr=1.0, entropy=5.0, steps=6))
    assert run.result["warnings"]


def test_of_each_of_several_targets(setup: Setup) -> None:
    run, *_ = check(setup(method="dial", several=True, **HEAD))
    assert [*run.result["targets"]] == [*DOMAINS]


def test_of_the_choice_of_a_setting(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRID", (0.0, 1.0))
    run, *_ = check(setup(entropy="auto", steps=2))
    assert len(run.result["trials"]) == 2


@pytest.mark.parametrize(("minutes", "method"), [(0.01, "frozen"), (10.0, "dial")])
def test_of_the_plan_for_some_minutes(
    minutes: float, method: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speed(*_: object) -> Speed:  # that of a machine whose speed is always the same
        return Speed(decode=0.001, evaluate=0.01, train=5.0)

    monkeypatch.setattr(budget, "measure_speed", speed)
    monkeypatch.setattr(budget, "_FEWEST", 2)
    monkeypatch.setattr(budget, "_FIXED", 0.0)
    run, *_ = check(setup(minutes=minutes, steps=None))
    assert run.result["method"] == method
    assert run.result["steps"] < 50


@pytest.mark.parametrize("name", [*validators.names(), *estimators.names()])
def test_of_every_score_and_estimate(name: str, judged: list[Runs]) -> None:
    found = set()
    for run in judged:
        seen = outputs.load(run.folder)
        assert seen.target.labels is None
        if name in validators.names():
            found.add(validators.score(name, seen))
        else:
            assert ESTIMATORS.create(name).lacks(seen) == ""
            found.add(ESTIMATORS.create(name).estimate(seen.with_features()))
    assert len(found) == 1


def test_of_the_evidence_beside_the_labels_themselves(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.pipeline.process.report", lambda _: None)  # the page, of this alone
    labelled, bare = (
        load_file(make("as it is").folder / "evidence.safetensors")
        for make in (setup(report=True, unlabelled=way) for way in (False, True))
    )
    assert labelled.keys() - bare.keys() == {"labels"}
    assert all(torch.equal(bare[name], labelled[name]) for name in bare)
