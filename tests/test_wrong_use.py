"""What a user can get wrong: exit code 2, one clear message, no traceback, and nothing lost."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from dial import Run

from .conftest import QUICK, Call, MakeFolder, mount, refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "magic"], "got 'magic'"),
        (["--backbone", "resnet9000"], "got 'resnet9000'"),
        (["--reference", "cauchy"], "got 'cauchy'"),
        (["--preset", "mine"], "one of the presets"),
        (["--lr", "fast"], "'fast'"),
        (["--lr", "-1"], "lr=-1.0"),
        (["--epochs", "0"], "epochs=0"),
        (["--steps", "0"], "steps=0"),
        (["--batch-size", "many"], "'many'"),
        (["--image-size", "0"], "image_size=0"),
        (["--seed", "-3"], "seed=-3"),
        (["--optimizer", "lbfgs"], "optimizer='lbfgs'"),
        (["--schedule", "random"], "schedule='random'"),
        (["--entropy", "lots"], "'lots'"),
        (["--passes", "three"], "passes to be one of auto, joint, separate"),
        (["--method", "ddc", "--reference", "normal"], "reference"),
        (["--device", "abacus"], "abacus"),
        (["--precision", "3-bit"], "3-bit"),
        (["--colour", "red"], "No such option"),
    ],
)
def test_a_setting_that_makes_no_sense(
    options: list[str], message: str, call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    refused(call("adapt", *pair, "--out", tmp_path / "run", *QUICK, *options), message)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_folders_that_are_not_what_they_should_be(
    call: Call, pair: tuple[Path, Path], make_folder: MakeFolder, tmp_path: Path
) -> None:
    source, target = pair
    (tmp_path / "empty").mkdir()
    one_class = make_folder("one", {"mug": 3})
    others = make_folder("others", {"cup": 3, "pen": 3}, seed=900)
    cases = [
        ((tmp_path / "nowhere", target), "nowhere', which does not exist"),
        ((source, tmp_path / "nowhere"), "nowhere', which does not exist"),
        ((tmp_path / "empty", target), "got none, no files at all"),
        ((source, tmp_path / "empty"), "got none, no files at all"),
        ((target, source), "a source with labels"),
        ((one_class, target), "two classes or more"),
        ((source, source), "a target other than the source"),
        ((source, others), "1 that are not (cup)"),
        (("office31:amazon", target), "pass --data DIR"),
        (("office99:amazon", target), "got 'office99'"),
        (("digits:kanji", target), "got 'kanji'"),
    ]
    for folders, message in cases:
        refused(call("adapt", *folders, "--out", tmp_path / "run", *QUICK), message)
    assert not (tmp_path / "run").exists()


def test_a_target_of_one_image(
    call: Call, pair: tuple[Path, Path], make_folder: MakeFolder, tmp_path: Path
) -> None:
    one = make_folder("single", {".": 1}, seed=700)
    told = call("adapt", pair[0], one, "--out", tmp_path / "run", *QUICK)
    refused(told, "2 or more", "got 1")


def test_broken_images_are_all_named(call: Call, pair: tuple[Path, Path], tmp_path: Path) -> None:
    (pair[0] / "mug" / "broken.jpg").write_bytes(b"no image")
    (pair[0] / "pen" / "empty.png").touch()
    told = call("adapt", *pair, "--out", tmp_path / "run", *QUICK)
    refused(told, "2 bad", "broken.jpg", "empty.png", "--skip-bad")


def test_a_class_of_broken_images_alone(
    call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    for image in (pair[0] / "mug").iterdir():
        image.write_bytes(b"no image")
    told = call("adapt", *pair, "--out", tmp_path / "run", *QUICK, "--skip-bad")
    bad, error = told.err.split("dial: error: ")
    assert "going on without 6 bad" in bad
    refused(told._replace(err=f"dial: error: {error}"), "every class of", "got none of mug")


def test_weights_that_are_broken_or_of_another_network(
    call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    broken, other = tmp_path / "broken.pth", tmp_path / "other.safetensors"
    broken.write_bytes(b"PK\x03\x04 and then nothing")
    save_file({"stranger.weight": torch.zeros(3)}, other)
    for file in (broken, other, tmp_path / "missing.pth"):
        told = call("adapt", *pair, "--out", tmp_path / file.stem, *QUICK, "--weights", file)
        refused(told, file.name)


def test_a_folder_that_holds_a_run_is_not_overwritten(
    call: Call, finished: Run, pair: tuple[Path, Path]
) -> None:
    before = {path.name: path.read_bytes() for path in finished.folder.iterdir()}
    refused(call("adapt", *pair, "--out", finished.folder, *QUICK), "holds a run already")
    told = call("adapt", *pair, "--out", finished.folder, *QUICK, "--resume")
    refused(told, "start anew in another --out")
    assert {path.name: path.read_bytes() for path in finished.folder.iterdir()} == before


@pytest.fixture
def copy(finished: Run, tmp_path: Path) -> Path:
    """The finished run once more, to be spoiled."""
    return Path(shutil.copytree(finished.folder, tmp_path / "copy"))


COMMANDS = {
    "predict": lambda folder, images, tmp: ["predict", folder, images, "--out", tmp / "x.csv"],
    "evaluate": lambda folder, images, tmp: ["evaluate", folder, images],
    "export": lambda folder, images, tmp: ["export", folder, tmp / "x.onnx"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_is_missing_unfinished_damaged_or_of_another_version(
    command: str, call: Call, copy: Path, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    def arguments(folder: Path) -> list[object]:
        return [*COMMANDS[command](folder, folders[1], tmp_path)]

    refused(call(*arguments(tmp_path / "nowhere")), "got no run there")
    model = copy / "model.safetensors"
    with safe_open(model, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["dial"])
    save_file(tensors, model, metadata={"dial": json.dumps(about | {"version": 999})})
    refused(call(*arguments(copy)), "got version 999")
    model.write_bytes(model.read_bytes()[:1000])
    refused(call(*arguments(copy)), "model.safetensors")
    (copy / "result.json").write_text("{")
    refused(call(*arguments(copy)), "result.json")
    (copy / "result.json").unlink()
    refused(call(*arguments(copy)), "one that is not finished", "--resume")


def test_images_that_cannot_be_labelled(
    call: Call, finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run, out = finished.folder, tmp_path / "x.csv"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"nothing")
    refused(call("predict", run, tmp_path / "nothing.png", "--out", out), "does not exist")
    refused(call("predict", run, tmp_path / "bad", "--out", out, "-q"), "1 bad")
    refused(call("predict", run, folders[1], "--json"), "add --out FILE.csv")
    refused(call("predict", run), "Missing argument")
    refused(call("predict", run, folders[1], "--device", "abacus"), "abacus")
    assert not [*tmp_path.glob("x.csv*")]


def test_scores_without_labels_or_with_other_classes(
    call: Call, finished: Run, folders: tuple[Path, Path], make_folder: MakeFolder
) -> None:
    refused(call("evaluate", finished.folder, folders[1] / "circle"), "images without classes")
    others = make_folder("others", {"cup": 2, "pen": 2})
    refused(call("evaluate", finished.folder, others), "2 that are not (cup, pen)")


def test_exports_that_cannot_be(call: Call, finished: Run, tmp_path: Path) -> None:
    refused(call("export", finished.folder, tmp_path / "x.tflite"), ".onnx", "x.tflite")
    refused(call("export", finished.folder, tmp_path / "x"), "suffixes")
    (tmp_path / "file").touch()
    told = call("export", finished.folder, tmp_path / "file" / "x.safetensors")
    refused(told, "to write", "a file where its folder should be")


def test_an_output_that_cannot_be_written(
    call: Call, pair: tuple[Path, Path], finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    refused(call("adapt", *pair, "--out", tmp_path / "file" / "run", *QUICK), "Not a directory")
    told = call("predict", finished.folder, folders[1], "--out", tmp_path / "file" / "x.csv")
    refused(told, "to write")


def test_a_disk_that_is_read_only(
    call: Call, finished: Run, folders: tuple[Path, Path], small_disk: Path
) -> None:
    mount(small_disk, "remount,ro")
    out = small_disk / "x.csv"
    refused(call("predict", finished.folder, folders[1], "--out", out), "Read-only file system")
    told = call("export", finished.folder, small_disk / "x.safetensors")
    refused(told, "Read-only file system")


def test_a_disk_that_is_full_loses_nothing_that_was_there(
    call: Call, pair: tuple[Path, Path], finished: Run, small_disk: Path
) -> None:
    out = small_disk / "run"
    refused(call("adapt", *pair, "--out", out, *QUICK), "No space left on device", "free some")
    assert json.loads((out / "config.json").read_text())["classes"] == ["mug", "pen"]
    assert {path.name for path in out.iterdir()} == {"config.json"}
    # Where there is room the same run goes on and ends.
    mount(small_disk, "remount,size=64m")
    assert call("adapt", *pair, "--out", out, *QUICK, "--resume").code == 0
    kept = (out / "model.safetensors").read_bytes()
    with suppress(OSError):  # until nothing is left
        (small_disk / "filler").write_bytes(bytes(64 << 20))
    refused(call("export", out, small_disk / "x.safetensors"), "No space left on device")
    assert (out / "model.safetensors").read_bytes() == kept
    assert not (small_disk / "x.safetensors").exists()
