"""Finished runs from their folders, with backbones that have a name and with objects."""

import json
import shutil
from pathlib import Path

import pytest
import timm
import torch

import dial
from dial import DialError, Run, backbones, files
from dial.deployment import model as models
from dial.deployment import runs

from ..conftest import CLASSES


def test_a_run_is_what_was_written(finished: Run) -> None:
    run = dial.runs.load(str(finished.folder))
    assert run.result == finished.result == json.loads((run.folder / "result.json").read_text())
    assert [line["epoch"] for line in run.history] == [1, 2]
    assert run.model.classes == CLASSES
    samples = run.samples()
    with torch.no_grad():
        assert torch.equal(run.network(samples), finished.network(samples))
    assert samples.shape == (16, 3, 32, 32)


def test_samples_that_are_missing_or_empty_are_an_error(finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path / "run")
    run = dial.runs.load(tmp_path / "run")
    files.save_tensors(run.folder / "samples.safetensors", {}, about={})
    with pytest.raises(DialError, match=r"images of the target in .*, got a file without any"):
        run.samples()
    (run.folder / "samples.safetensors").unlink()
    with pytest.raises(DialError, match=r"images of the target .*; fix: name a folder of images"):
        run.samples()


def test_unfinished_and_damaged_runs_are_an_error(finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("{")
    with pytest.raises(DialError, match=r"a sound run .*damaged result\.json or metrics\.jsonl"):
        dial.runs.load(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(DialError, match=r"a finished run in .* got one that is not finished"):
        runs.read_records(tmp_path / "run")
    with pytest.raises(DialError, match="got no run there; fix: check the path"):
        dial.runs.load(tmp_path / "nowhere")


def test_a_run_of_an_object_predicts_evaluates_and_exports(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """The network of a finished run as if it had been passed as an object."""
    network = timm.create_model("test_resnet", num_classes=3)
    name = backbones.create(network, num_classes=3).name
    shutil.copytree(finished.folder, tmp_path / "run")
    model = finished.model
    models.save(
        tmp_path / "run" / "model.safetensors",
        models.Model(model.network, model.classes, model.preprocessing, name),
    )
    with pytest.raises(DialError, match=r"can build by its name, got 'object:ResNet'"):
        dial.runs.load(tmp_path / "run")
    run = dial.runs.load(tmp_path / "run", backbone=network)
    assert [*dial.predict(run, [folders[1]])] == [*dial.predict(finished, [folders[1]])]
    assert dial.evaluate(run, folders[1]) == dial.evaluate(finished, folders[1])
    for suffix in ("onnx", "pt2", "safetensors"):
        done = dial.export(run, tmp_path / f"network.{suffix}")
        assert done.difference <= 1e-4


def test_a_run_is_shown_in_one_line(finished: Run) -> None:
    shown = repr(finished)
    assert "\n" not in shown
    accuracy = f"{finished.result['target_accuracy']:.1%}"
    for part in (str(finished.folder), "dial on timm:test_resnet", "3 classes", accuracy):
        assert part in shown
