"""dial.adapt from end to end: files, resuming, processes, labels, watchdogs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import nn

import dial
from dial import DialError, backbones, methods
from dial.console import Reporter
from dial.data.datasets import open_domain
from dial.data.domain import ImageFiles
from dial.data.prepare import prepare
from dial.methods import Batch, Terms
from dial.methods.source_only import SourceOnly
from dial.pipeline.process import Process
from dial.reporting import card, record
from dial.training import engine

from .commands import Command
from .conftest import (
    CLASSES,
    SETTINGS,
    WITH_SOURCE,
    check_that_it_resumes,
    move_into_shuffled_folders,
    slow,
)
from .oracles import network_input


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return SETTINGS | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"}


@pytest.mark.parametrize("method", WITH_SOURCE)
def test_every_method_trains_and_leaves_a_run(
    method: str, folders: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    run = dial.adapt(*folders, **settings | {"method": method, "report": True})
    folder, trains = run.folder, methods.kind(method).trains
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.jsonl", "model.safetensors", "result.json", "samples.safetensors",
        "evidence.safetensors", "memory.safetensors", "outputs.safetensors", "report.html",
        "timing.json", "MODEL_CARD.md",
    } | ({"last.ckpt"} if trains else set())  # fmt: skip
    assert run.result["method"] == method
    assert run.result["steps"] == (8 if trains else 0)
    assert run.result["seconds"] > 0
    assert 0 <= run.result["target_accuracy"] <= 1
    assert [line["epoch"] for line in run.history] == ([1, 2] if trains else [])
    assert run.model.classes == CLASSES
    assert not any(type(m).__module__.startswith("dial") for m in run.network.modules())
    kept = record.load(folder)
    accuracy = float(np.mean(kept.predicted["after"] == kept.labels))
    assert accuracy == pytest.approx(run.result["target_accuracy"])
    assert ("before" in kept.predicted) == ("before" in kept.shift) == bool(kept.without)
    assert len(kept.layers) == len(kept.shift["after"]) > 0
    # The finished file gives the accuracy that the run reports.
    images = torch.stack(
        [network_input(path, run.model.preprocessing) for path in _files(folders[1])]
    )
    labels = [CLASSES.index(path.parent.name) for path in _files(folders[1])]
    with torch.no_grad():
        right = (run.network(images).argmax(1) == torch.tensor(labels)).double().mean()
    assert float(right) == pytest.approx(run.result["target_accuracy"])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def test_an_epoch_is_judged_by_some_images_with_their_own_labels(
    folders: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.pipeline.process.WATCHED", 7)  # so 12 it is: 4 for each class
    run = dial.adapt(*folders, **settings | {"method": "source_only", "statistics": "batch"})
    preprocessing, classes = run.model.preprocessing, run.model.classes
    (domain,) = prepare([open_domain(folders[1])], resize=preprocessing.resize, use_cache=False)
    assert isinstance(domain.images, ImageFiles)
    paths = [domain.images.paths[row] for row in domain.pixels.order[:12]]
    with torch.no_grad():
        found = run.network(torch.stack([network_input(path, preprocessing) for path in paths]))
    names = [classes[index] for index in found.argmax(1)]
    right = [name == path.parent.name for name, path in zip(names, paths, strict=True)]
    assert run.history[-1]["target_accuracy"] == pytest.approx(np.mean(right))


def test_what_is_told_about_a_run_costs_it_nothing(
    folders: tuple[Path, Path],
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings |= {"report": True}
    whole = dial.adapt(*folders, **settings)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError("too many pictures")

    monkeypatch.setattr(record, "record", fail)
    monkeypatch.setattr(card, "render", fail)
    monkeypatch.setattr(methods.kind("dial"), "unadapted", fail)
    bare = dial.adapt(*folders, **settings | {"out": tmp_path / "bare", "quiet": False})
    said = capsys.readouterr().err
    assert "the run has no evidence for a report (MemoryError: too many" in said
    assert "the run has no model card (MemoryError: too many" in said
    assert not (bare.folder / "report.html").exists()
    assert not (bare.folder / card.NAME).exists()
    ours, theirs = ((r.folder / "model.safetensors").read_bytes() for r in (whole, bare))
    assert ours == theirs
    assert whole.history == bare.history


def words(folders: tuple[Path, Path], settings: dict[str, Any], *more: str) -> list[str]:
    options = [
        f"--{k.replace('_', '-')}={v}" for k, v in settings.items() if k not in ("quiet", "report")
    ]
    return ["adapt", *map(str, folders), *options, *more]


@pytest.mark.parametrize("targets", [1, 2])
def test_killed_before_its_page_a_finished_run_gets_it_when_it_is_resumed(
    targets: int, folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    settings |= {"method": "frozen", "report": True}
    moved = move_into_shuffled_folders(folders[1], tmp_path / "moved")
    target = folders[1] if targets == 1 else [folders[1], moved]
    dial.adapt(folders[0], target, **settings)
    pages = pages_in(settings["out"])
    assert len(pages) == targets
    for path in pages:
        path.unlink()
    dial.adapt(folders[0], target, **settings | {"report": False}, resume=True)
    assert not pages_in(settings["out"])
    dial.adapt(folders[0], target, **settings, resume=True)
    assert pages_in(settings["out"]) == pages


def pages_in(folder: Path) -> dict[Path, str]:
    """Returns the pages in a folder, without times."""
    found = {path: path.read_text() for path in folder.rglob("report.html")}
    return {path: re.sub(r"\b[\d.]+ (s|min)\b", "", text) for path, text in found.items()}


def test_a_run_keeps_nothing_of_another_one_that_was_killed_in_its_folder(
    folders: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    settings |= {"method": "frozen"}
    with (
        patch("dial.deployment.runs.keep_samples", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        dial.adapt(*folders, **settings | {"report": True})
    assert (settings["out"] / record.NAME).exists()
    dial.adapt(*reversed(folders), **settings)
    with pytest.raises(DialError, match=r"the evidence for a report in .*, got none"):
        dial.report(settings["out"])


@pytest.mark.parametrize("backbone", ["timm:test_resnet", slow("timm:test_efficientnet")])
def test_a_whitened_run_goes_through_everything(
    backbone: str, folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    given = settings | {"backbone": backbone, "reference": "whitened:4", "report": True}
    given |= {"align_logits": True, "head": True, "start": "probe"}
    run = dial.adapt(*folders, **given)
    assert run.result["reference"] == "whitened:4"
    assert (run.folder / "report.html").exists()
    check_that_it_resumes(run, folders, given)
    labels = [item.label for item in dial.predict(run, [str(folders[1])])]
    names = [path.parent.name for path in _files(folders[1])]
    right = np.mean([one == other for one, other in zip(labels, names, strict=True)])
    assert right == pytest.approx(run.result["target_accuracy"])
    for suffix in ("onnx", "safetensors"):
        assert dial.export(run, tmp_path / f"model.{suffix}").difference <= 1e-4


def test_asked_to_stop_it_writes_a_checkpoint_and_says_how_to_go_on(
    folders: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    settings |= {"epochs": 500}
    process = Command(*words(folders, settings))
    while not (settings["out"] / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130, told
    assert "resume with the same command and --resume" in told
    assert "Traceback" not in told
    content = torch.load(settings["out"] / "last.ckpt", weights_only=True)
    assert content["progress"]["step"] > 0


def test_asked_to_stop_after_the_last_step_it_stops_too(
    folders: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings |= {"epochs": 1}
    with monkeypatch.context() as patch:
        stop = lambda *_: signal.raise_signal(signal.SIGTERM)  # noqa: E731
        patch.setattr("dial.console.Reporter.epoch", stop)
        with pytest.raises(engine.Interrupted):
            dial.adapt(*folders, **settings)
    assert not (settings["out"] / "result.json").exists()
    assert dial.adapt(*folders, **settings, resume=True).result["steps"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["normal", "epsilon"])
def test_two_processes_with_half_the_batch_train_as_one_does(
    reference: str, folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    settings |= {"reference": reference, "optimizer": "sgd", "holdout": 0, "batch_size": "16+16"}
    settings |= {"device": "cpu", "precision": "64-true"}  # what differs is not rounding
    settings |= {"epochs": None, "steps": 20}
    alone = dial.adapt(*folders, **settings | {"out": tmp_path / "alone"})
    settings = {k: v for k, v in settings.items() if v is not None}
    main = [sys.executable, "-c", "from dial.cli import main; main()"]
    done = subprocess.run(
        [*main, *words(folders, settings | {"devices": 2}), "--no-report"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, two = (
        torch.load(out / "last.ckpt", weights_only=True)["trainee"]
        for out in (alone.folder, settings["out"])
    )
    for name, tensor in one.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(two[name], tensor, atol=1e-4, rtol=1e-4)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    folders: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    with pytest.raises(DialError, match=r"a finite loss, got .*nan.* with Dial; fix: try a lower"):
        dial.adapt(*folders, **settings | {"lr": 1e30, "epochs": 50, "entropy": 1e30})


def test_runs_that_exist_or_differ_are_not_overwritten(
    folders: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    run = dial.adapt(*folders, **settings | {"epochs": 1})
    with pytest.raises(DialError, match="which holds a run already; fix: pass --resume"):
        dial.adapt(*folders, **settings | {"epochs": 1})
    with pytest.raises(DialError, match=r"lr was 0\.01, is 0\.5"):
        dial.adapt(*folders, **settings | {"epochs": 1, "lr": 0.5}, resume=True)
    again = dial.adapt(*folders, **settings | {"epochs": 1}, resume=True)  # finished: no training
    assert again.result == run.result
    (run.folder / "result.json").unlink()
    (run.folder / "last.ckpt").write_bytes(b"damaged")
    with pytest.raises(DialError, match="a checkpoint of this run"):
        dial.adapt(*folders, **settings | {"epochs": 1}, resume=True)
    with pytest.raises(DialError, match=r"a finished run in .* got one that is not finished"):
        dial.deployment.runs.load(run.folder)
    with pytest.raises(DialError, match="got no run there"):
        dial.deployment.runs.load(run.folder.parent / "nowhere")


def test_a_start_from_the_probe_is_the_same_after_a_resume(
    folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    given = settings | {"start": "probe", "align_logits": True}
    run = dial.adapt(*folders, **given)
    other = dial.adapt(*folders, **given | {"out": tmp_path / "random", "start": "random"})
    assert run.history[0]["cross_entropy"] != other.history[0]["cross_entropy"]
    stopped = tmp_path / "stopped"
    with (
        pytest.raises(engine.Interrupted),
        patch("dial.console.Reporter.epoch", side_effect=[None, engine.Interrupted]),
    ):
        dial.adapt(*folders, **given | {"out": stopped})
    assert (stopped / "last.ckpt").exists()
    again = dial.adapt(*folders, **given | {"out": stopped}, resume=True)
    one, two = (load_file(r.folder / "model.safetensors") for r in (run, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_wrong_settings_are_said_before_images_are_read(
    folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    for changes, message in [
        ({"method": "magic"}, "one of the methods adabn"),
        ({"backbone": "magic"}, "one of the backbones"),
        ({"preset": "magic"}, "one of the presets paper-alexnet"),
        ({"lr": -1.0}, r"got lr=-1\.0"),
        ({"momentum": 2.0}, "got momentum=2.0"),
        ({"start": "magic"}, "start to be one of random, probe"),
        ({"method": "source_only", "entropy": 0.1}, "settings of the method source_only"),
        ({"device": "abacus"}, "a device 'abacus'"),
        ({"batch_size": "many"}, "a batch size like 32"),
    ]:
        with pytest.raises(DialError, match=message):
            dial.adapt(*folders, **settings | changes | {"out": tmp_path / message})


def test_collapse_is_reported_with_figures(capsys: pytest.CaptureFixture[str]) -> None:
    logits = torch.zeros(100, 10)
    logits[:, 3] = 1
    process: Any = SimpleNamespace(reporter=Reporter(quiet=False, title=""))
    Process._warn_of_collapse(process, logits, "")
    assert "collapsed into 1 of 10 classes, 100% of them into one" in capsys.readouterr().err


def test_progress_is_plain_data() -> None:
    assert json.loads(json.dumps(vars(engine.Progress()))) == vars(engine.Progress())


@dataclass(frozen=True, kw_only=True)
class Halved(SourceOnly):
    """A method of one's own: a part of the source's loss."""

    momentum: float = 0.5
    """A setting with the name of one of the training's."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        for terms in super().terms(trainee, batch, progress):
            yield {name: self.momentum * term for name, term in terms.items()}


def own_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, len(CLASSES)),
    )  # fmt: skip


def test_a_method_and_a_network_of_ones_own(
    folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    network = own_network()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    own = settings | {"method": Halved(), "backbone": network, "weights": "auto"}
    changed = own | {"method.momentum": 0.25}
    run = dial.adapt(*folders, **changed)
    assert all(torch.equal(before[name], t) for name, t in network.state_dict().items())
    config = json.loads((run.folder / "config.json").read_text())["settings"]
    assert (config["method"], config["backbone"]) == ("Halved", "Sequential")
    assert (config["momentum"], config["options"]["momentum"]) == (0.9, 0.25)
    assert dial.adapt(*folders, **changed, resume=True).result == run.result
    with pytest.raises(DialError, match=r"momentum was 0\.25, is 0\.5"):
        dial.adapt(*folders, **own, resume=True)
    with pytest.raises(DialError, match=r"dial\.runs\.load\(folder, backbone=network\)"):
        dial.runs.load(run.folder)
    again = dial.runs.load(run.folder, backbone=own_network())
    images = run.samples()
    assert torch.equal(again.network(images), run.network(images))
    aligned = dial.adapt(*folders, **settings | {"backbone": network, "out": tmp_path / "dial"})
    assert aligned.result["reference"] == "normal"
    assert not any(type(m).__module__.startswith("dial") for m in aligned.network.modules())


def test_a_network_without_batch_norm_from_start_to_export(
    folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(timm.create_model("test_vit", num_classes=len(CLASSES)).state_dict(), weights)
    given = settings | {
        "backbone": "timm:test_vit",
        "weights": str(weights),
        "append_after": ["blocks.0.mlp.fc1", "head"],
        "sparsity": 0.01,
        "head": True,
        "pseudo_labels": 0.3,
        "refits": 1,
    }
    run = dial.adapt(*folders, **given)
    config = json.loads((run.folder / "config.json").read_text())
    assert config["settings"]["append_after"] == ["blocks.0.mlp.fc1", "head"]
    assert config["settings"]["align_logits"] is True
    assert "append_after" not in config["automatic"]
    assert [each["name"] for each in run.result["candidates"]] == ["frozen", "classifier", "head"]
    check_that_it_resumes(run, folders, given)
    size = settings["image_size"]
    own = backbones.create("timm:test_vit", num_classes=3, weights="none", image_size=size)
    # Its own architecture, for images of this size.
    own.network.load_state_dict(load_file(run.folder / "model.safetensors"))
    loaded = dial.runs.load(run.folder)
    images = run.samples()
    assert torch.equal(loaded.network(images), own.network.eval()(images))
    labels = [prediction.label for prediction in dial.predict(loaded, [str(folders[1])])]
    assert len(labels) == 33
    for suffix in ("onnx", "pt2", "safetensors"):
        assert dial.export(loaded, tmp_path / f"m.{suffix}").difference < 1e-4
    with pytest.raises(DialError, match=r"in `append_after`, got 'haed'; fix: .*such as head"):
        dial.adapt(*folders, **given | {"append_after": ["haed"], "out": tmp_path / "wrong"})
    assert not (tmp_path / "wrong").exists()
