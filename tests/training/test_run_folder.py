"""A run's folder: what config.json holds, which runs are the same, and repeating one from it."""

import json
from pathlib import Path
from typing import Any

import pytest

import dial
from dial import DialError
from dial.training import run_folder
from dial.training.settings import Settings

from ..conftest import SETTINGS

Folders = tuple[Path, Path]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return SETTINGS | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"}


def test_config_is_complete_and_resolved(folders: Folders, settings: dict[str, Any]) -> None:
    dial.adapt(*folders, **settings | {"image_size": None, "preset": "digits_cnn", "epochs": 1})
    config = json.loads((settings["out"] / "config.json").read_text())
    stored = config["settings"]
    assert set(stored) == set(Settings().stored())
    assert stored["image_size"] == 160  # timm's test_resnet's own
    assert stored["align_logits"] is False
    assert stored["frozen"] == []
    assert stored["options"] == {
        "start": "random", "reference": "normal", "entropy": 0.3, "warmup": 0.25, "delay": 0.25,
        "sparsity": 0.0,
        "passes": "auto", "centroids": False, "criterion": "entropy", "pseudo_labels": 0.0,
        "refits": 0, "affine": "shared", "head": False,
    }  # fmt: skip
    assert stored["append_after"] == []
    assert config["automatic"] == [
        "image_size", "append_after", "align_logits", "frozen", "method.reference",
    ]  # fmt: skip
    assert config["execution"]["precision"] == "32-true"
    assert config["execution"]["skip_bad"] is False
    assert config["execution"]["devices"] == 1
    assert config["input"]["source"] == str(folders[0].resolve())


@pytest.mark.parametrize("method", ["dial", "revgrad"])
def test_a_run_repeated_from_its_config_is_the_same_to_the_byte(
    method: str, folders: Folders, settings: dict[str, Any], tmp_path: Path
) -> None:
    more = {"method": method, "batch_size": "6+6", "seed": 3, "schedule": "cosine"}
    first = dial.adapt(*folders, **settings | more)
    again = dial.adapt(
        config=first.folder / "config.json", out=tmp_path / "again", quiet=True, report=False
    )
    one, two = ((run.folder / "model.safetensors").read_bytes() for run in (first, again))
    assert one == two
    assert first.history == again.history
    configs = [json.loads((run.folder / "config.json").read_text()) for run in (first, again)]
    assert configs[0]["settings"] == configs[1]["settings"]


def test_options_given_with_a_config_win(
    folders: Folders, settings: dict[str, Any], tmp_path: Path
) -> None:
    first = dial.adapt(*folders, **settings | {"entropy": 0.7})
    config = first.folder / "config.json"
    other = dial.adapt(config=config, out=tmp_path / "b", steps=3, quiet=True, report=False)
    stored = json.loads((other.folder / "config.json").read_text())["settings"]
    assert (stored["steps"], stored["options"]["entropy"]) == (3, 0.7)
    assert other.result["steps"] == 3


def test_a_config_of_the_former_version_is_repeated(
    folders: Folders, settings: dict[str, Any], tmp_path: Path
) -> None:
    kept = {"entropy": 0.7, "centroids": True, "head": False, "pseudo_labels": 0.0}
    first = dial.adapt(*folders, **settings | kept)
    config = json.loads((first.folder / "config.json").read_text())
    former = {key: config[key] for key in ("dial", "source", "target", "classes", "settings")}
    former["settings"] |= {"image_size": 32, "align_logits": None, "frozen": None}
    former["settings"]["options"] = {"entropy": 0.7, "centroids": True, "start": "probe"}
    del former["settings"]["holdout"]  # older still: nothing was held out
    path = tmp_path / "config.json"
    path.write_text(json.dumps(former))
    again = dial.adapt(config=path, out=tmp_path / "b", holdout=0.1, quiet=True, report=False)
    one, two = ((run.folder / "model.safetensors").read_bytes() for run in (first, again))
    assert one == two


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "wanted the settings of a run"),
        ("[]", "a list in place of an object"),
        ("{}", "wanted the config.json of a run in .*KeyError"),
        ('{"source": "a", "target": "b", "settings": {"magic": 1}}', "wanted the config.json of a"),
    ],
)
def test_a_config_that_is_none(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(DialError, match=message):
        dial.adapt(config=path, out=tmp_path / "run")


def test_neither_domains_nor_a_config(tmp_path: Path) -> None:
    with pytest.raises(DialError, match="wanted a source and a target, got none"):
        dial.adapt(out=tmp_path / "run")


def test_settings_of_the_former_version_compare_with_those_of_today() -> None:
    now = {"settings": Settings(backbone="digits_cnn", options={"entropy": 0.3}).stored()}
    former = {"settings": dict(now["settings"])}
    del former["settings"]["bias_rate"]
    assert run_folder.differences(former, now) == {}
    resolved = {"settings": now["settings"] | {"image_size": 28}, "automatic": ["image_size"]}
    assert run_folder.differences(resolved, now) == {}
    changes = run_folder.differences({"settings": resolved["settings"]}, now)
    assert changes == {"image_size": (28, None)}
    other = {"settings": now["settings"] | {"options": {"entropy": 0.3, "sparsity": 0.1}}}
    changes = run_folder.differences(former, other)
    assert run_folder.show_changes(changes) == "sparsity was 0.0, is 0.1"


def test_options_that_are_missing_are_the_methods_defaults() -> None:
    now = Settings(method="dan").stored()

    def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        return run_folder.differences({"settings": now | before}, {"settings": now | after})

    for options in ({}, {"weight": 1.0}):
        assert not changed({"options": options}, {})
        assert not changed({}, {"options": options})
    assert changed({"options": {"weight": 0.5}}, {}) == {"method.weight": (0.5, 1.0)}
    assert list(changed({"method": "ddc"}, {})) == ["method", "method.weight"]
    assert changed({"steps": 800}, {}) == {"steps": (800, None)}


@pytest.mark.parametrize(
    ("name", "value"),
    [("image_size", 96), ("append_after", ["fc"]), ("align_logits", True), ("frozen", ["stem"])],
)
def test_what_was_left_to_the_backbone_is_not_what_was_asked_for(name: str, value: object) -> None:
    left, asked = Settings().stored(), Settings().stored() | {name: value}
    resolved = {"settings": asked, "automatic": [name]}
    assert not run_folder.differences(resolved, {"settings": left})
    assert run_folder.differences(resolved, {"settings": asked}) == {name: (None, value)}
    assert run_folder.differences({"settings": asked}, {"settings": left}) == {name: (value, None)}
