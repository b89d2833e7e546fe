"""The model you already have: no source images, statistics alone, a few labels, drift."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import dial
from dial import DialError, Run, files, runs
from dial.cli import app
from dial.deployment.drift import check_drift
from dial.methods import _head as head
from dial.training import engine

from .conftest import CLASSES, SETTINGS, move_into_shuffled_folders

SHORT = {k: v for k, v in SETTINGS.items() if k not in ("backbone", "weights", "image_size")}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return SHORT | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "new"}


def tensors(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder / "model.safetensors")


def same(one: Run, other: Run) -> bool:
    first, second = tensors(one), tensors(other)
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_goes_on_without_its_source(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any]
) -> None:
    run = dial.adapt(model=finished.folder, target=folders[1], **options | {"report": True})
    assert run.result["method"] == "source_free"
    assert run.result["source"] == str(finished.folder)
    assert [each["name"] for each in run.result["candidates"]] == ["start", "classifier", "head"]
    assert run.model.classes == CLASSES
    assert run.model.preprocessing == finished.model.preprocessing
    assert run.result["no_estimate"].startswith("there are no source images")
    page = (run.folder / "report.html").read_text()
    assert "Where the shift is" not in page
    assert "the finished model that the run went on from" in page
    config = json.loads((run.folder / "config.json").read_text())
    assert config["input"]["model"] == str(finished.folder.resolve())
    again = dial.adapt(config=run.folder / "config.json", out=options["out"].with_name("again"))
    assert same(run, again)
    third = dial.adapt(model=run, target=folders[1], **options | {"out": options["out"] / "third"})
    assert third.result["source"] == str(run.folder)


def test_a_run_that_was_stopped_ends_with_the_same_model(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any]
) -> None:
    given = options | {"model": finished.folder, "target": folders[1], "labelled": folders[0]}
    whole = dial.adapt(**given)
    stopped = given | {"out": options["out"].with_name("stopped")}
    with (
        pytest.raises(engine.Interrupted),
        patch("dial.console.Reporter.epoch", side_effect=[None, engine.Interrupted]),
    ):
        dial.adapt(**stopped)
    assert same(whole, dial.adapt(**stopped, resume=True))
    assert same(whole, dial.adapt(**stopped, resume=True))
    for change in ({"model": whole.folder}, {"labelled": folders[0] / "square"}):
        with pytest.raises(DialError):
            dial.adapt(**stopped | change, resume=True)


def test_statistics_alone_change_nothing_but_the_norms(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any]
) -> None:
    run = dial.adapt(model=finished, target=folders[0], steps=0, **options)
    assert (run.result["method"], run.result["steps"]) == ("recalibrate", 0)
    before, after = tensors(finished), tensors(run)
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("running" in name for name in changed)
    assert json.loads((run.folder / "config.json").read_text())["settings"]["options"]["strength"]


def test_any_network_with_its_classes(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any], tmp_path: Path
) -> None:
    network = dial.build("timm:test_resnet", num_classes=3, weights="none")
    wanted = network.state_dict()
    kept = {name: value.clone() for name, value in wanted.items()}
    by_object = dial.adapt(
        model=network, classes=CLASSES, target=folders[1], image_size=32, **options
    )
    assert all(torch.equal(kept[name], wanted[name]) for name in kept)  # it was copied
    save_file(kept, tmp_path / "weights.safetensors")
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    by_file = dial.adapt(
        model=tmp_path / "weights.safetensors",
        backbone="timm:test_resnet",
        classes=tmp_path / "classes.txt",
        target=folders[1],
        image_size=32,
        **options | {"out": tmp_path / "by-file"},
    )
    assert same(by_object, by_file)
    assert runs.load(by_file.folder).model.classes == CLASSES
    again = dial.adapt(config=by_file.folder / "config.json", out=tmp_path / "again")
    assert same(by_file, again)
    del finished


def test_several_targets_from_one_model(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any]
) -> None:
    several = dial.adapt(model=finished, target=[*folders], **options)
    assert [*several] == ["bright", "dark"]
    assert not same(several["bright"], several["dark"])
    with pytest.raises(DialError, match="one of the targets bright, dark"):
        dial.adapt(
            model=several.folder,
            target=folders[0],
            **options | {"out": options["out"].with_name("never")},
        )


def test_each_of_several_targets_says_what_its_own_statistics_weigh(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any]
) -> None:
    several = dial.adapt(model=finished, target=[*folders], steps=0, **options)
    for name, place in zip(("bright", "dark"), folders, strict=True):
        out = options["out"].with_name(f"{name} alone")
        alone = dial.adapt(model=finished, target=place, steps=0, **options | {"out": out})
        weights = [run.result["statistics_weight"] for run in (several[name], alone)]
        assert weights[0] == weights[1]
        assert same(several[name], alone)


def test_no_other_label_of_the_target_moves_a_bit(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = folders
    shuffled = move_into_shuffled_folders(target, tmp_path / "shuffled")
    (tmp_path / "flat").mkdir()
    for path in target.rglob("*.png"):
        name = f"{path.parent.name}-{path.name}"
        (tmp_path / "flat" / name).write_bytes(path.read_bytes())
    given = [path for path in sorted(target.rglob("*.png")) if path.stem in ("3", "7")]
    lines = "".join(f"{path},{path.parent.name}\n" for path in given)
    (tmp_path / "labels.csv").write_text(f"path,label\n{lines}")
    wrong = "".join(f"{path},{CLASSES[0]}\n" for path in given)
    (tmp_path / "wrong.csv").write_text(f"path,label\n{wrong}")
    base = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "head": True, "pseudo_labels": 0.3}
    base |= {"refits": 1, "start": "probe"}
    places = {"true": target, "shuffled": shuffled, "flat": tmp_path / "flat"}
    found = {}
    for name, place in places.items():
        labels = tmp_path / "labels.csv"
        found[name] = dial.adapt(source, place, labelled=labels, out=tmp_path / name, **base)
    assert same(found["true"], found["shuffled"])
    assert same(found["true"], found["flat"])
    assert found["true"].result["target_images"] == 33 - 6  # the labelled ones are not scored
    assert found["flat"].result["target_accuracy"] is None
    other = tmp_path / "wrong.csv"
    moved = dial.adapt(source, target, labelled=other, out=tmp_path / "moved", **base)
    assert not same(found["true"], moved)  # and those that were given do
    plain = dial.adapt(source, target, out=tmp_path / "plain", **base)
    assert plain.result["target_images"] == 33
    assert not same(found["true"], plain)


def test_other_labels_are_another_run(folders: tuple[Path, Path], tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    image = folders[1] / "circle" / "0.png"
    labels.write_text(f"{image} circle\n")
    base = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"}
    base |= {"labelled": labels, "method": "frozen"}
    dial.adapt(*folders, **base)
    labels.write_text(f"{image} square\n")
    with pytest.raises(DialError, match="labelled was"):
        dial.adapt(*folders, **base, resume=True)


def test_known_labels_are_in_every_sample(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.pipeline.process.FITTED", (100, 8))  # of 33 target images
    labels = tmp_path / "labels.txt"
    given = [folders[1] / kind / f"{number}.png" for kind in CLASSES for number in (2, 5)]
    labels.write_text("".join(f"{path} {path.parent.name}\n" for path in given))
    seen: list[int] = []
    fit = head.fit_head

    def watch(*args: Any, **kwargs: Any) -> Any:
        seen.append(int((kwargs["given"] >= 0).sum()))
        return fit(*args, **kwargs)

    monkeypatch.setattr(head, "fit_head", watch)
    base = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"}
    dial.adapt(*folders, **base, labelled=labels, method="frozen")
    assert seen == [6]


def test_a_network_without_batch_norm_goes_on_and_resumes(
    folders: tuple[Path, Path], options: dict[str, Any]
) -> None:
    network = dial.build("timm:test_vit", num_classes=3, weights="none")
    given = options | {"model": network, "classes": CLASSES, "target": folders[1], "epochs": 1}
    run = dial.adapt(**given, image_size=160)
    assert run.result["reference"] is None
    assert same(run, dial.adapt(**given, image_size=160, resume=True))
    with pytest.raises(DialError, match="one without any"):
        dial.adapt(**given | {"out": options["out"].with_name("never"), "steps": 0}, image_size=160)
    assert not options["out"].with_name("never").exists()


def test_a_damaged_memory_is_refused(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any], tmp_path: Path
) -> None:
    run = dial.adapt(model=finished, target=folders[1], steps=0, **options)
    path = run.folder / "memory.safetensors"
    sound = path.read_bytes()
    about, content = files.load_tensors(path, wanted="", version=None, fix="")
    wrong: list[dict[str, torch.Tensor]] = [
        {"descriptions": content["descriptions"] * float("nan")},
        {"predicted": content["predicted"].float()},
        {"predicted": content["predicted"][:2]},
        {"centroids": content["centroids"][:, :5]},
        {"labels": content["labels"][:1]},
        {"labels": content["labels"] + len(CLASSES)},
    ]
    for change in wrong:
        files.save_tensors(path, content | change, about=about)
        with pytest.raises(DialError, match="that of another model"):
            dial.adapt(model=run.folder, target=folders[0], out=tmp_path / "next", quiet=True)
    files.save_tensors(path, content | {"descriptions": torch.ones(9, 3)}, about=about)
    with pytest.raises(DialError, match="descriptions by the run"):
        check_drift(run, [folders[0]])
    path.write_bytes(sound)
    broken = tmp_path / "new images"
    broken.mkdir()
    for number, image in enumerate((folders[1] / "circle").glob("*.png")):
        (broken / f"{number}.png").write_bytes(image.read_bytes())
    (broken / "broken.png").write_bytes(b"no image")
    found = check_drift(run, [broken])
    assert (found.images, found.unreadable) == (11, 1)


def test_a_run_is_repeated_on_another_target(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any], tmp_path: Path
) -> None:
    run = dial.adapt(model=finished, target=folders[1], steps=0, **options)
    config, new = str(run.folder / "config.json"), str(tmp_path / "other")
    words = ["adapt", "--config", config, str(folders[0]), "--out", new, "--quiet"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert runs.load(new).result["target"] == str(folders[0])
    assert runs.load(new).result["method"] == "recalibrate"


@pytest.mark.parametrize("method", ["frozen", "autodial"])
def test_other_methods_that_take_labels(
    method: str, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    base = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "method": method}
    labelled = folders[1] / ".." / "dark"
    few = tmp_path / "few.txt"
    few.write_text("".join(f"{labelled / kind / '0.png'} {kind}\n" for kind in CLASSES))
    run = dial.adapt(*folders, labelled=few, out=tmp_path / "run", **base)
    with pytest.raises(DialError, match=r"not trained with, got .*few\.txt, which it was given"):
        dial.evaluate(run, few)
    assert run.result["target_images"] == 30


def test_mistakes_get_one_clear_error(
    finished: Run, folders: tuple[Path, Path], options: dict[str, Any], tmp_path: Path
) -> None:
    two = tmp_path / "two.txt"
    two.write_text("circle\nsquare\n")
    weights = tmp_path / "weights.safetensors"
    save_file(dict(finished.network.state_dict()), weights)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "star.txt").write_text(f"{folders[1] / 'circle' / '0.png'} star\n")
    target = {"target": folders[1]}
    given = {"model": weights, "backbone": "timm:test_resnet", "image_size": 32} | target
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model": finished}, "wanted a target"),
        ({"model": finished, "source": folders[0]} | target, "a target alone"),
        ({"model": tmp_path / "nothing"} | target, "does not exist"),
        ({"model": weights} | target, "no --backbone and no --classes"),
        (given | {"classes": two}, "another number of outputs"),
        (given | {"classes": CLASSES, "backbone": "digits_cnn"}, "the .* tensors of"),
        ({"model": finished.network} | target, "names of the classes"),
        ({"model": finished, "classes": ["a", "b", "c"]} | target, "the classes of the run"),
        ({"model": finished, "backbone": "digits_cnn"} | target, "the backbone of the run"),
        ({"model": finished, "method": "dial"} | target, "needs the images of a source"),
        ({"model": finished, "minutes": 1} | target, "minutes"),
        ({"model": finished, "pseudo_labels": "auto"} | target, "tune"),
        ({"model": finished, "append_after": ("fc",)} | target, "append_after"),
        ({"model": finished, "image_size": 64} | target, "the image size of the run"),
        ({"model": finished, "steps": 0, "method": "source_free"} | target, "steps"),
        ({"source": folders[0], "classes": CLASSES} | target, "--classes without --from"),
        ({"source": folders[0], "method": "source_free"} | target, "a finished model"),
        ({"source": folders[0], "steps": 0} | target, "steps"),
        ({"source": folders[0], "labelled": tmp_path / "empty.txt"} | target, "an empty file"),
        ({"source": folders[0], "labelled": tmp_path / "star.txt"} | target, "got star"),
        (
            {"source": folders[0], "labelled": folders[1] / "circle", "method": "ddc"} | target,
            "images without labels|learns from labelled",
        ),
    ]
    for arguments, message in cases:
        with pytest.raises(DialError, match=message):
            dial.adapt(**options | arguments)
    assert not (options["out"] / "config.json").exists()


def test_the_command_from_end_to_end(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run, new = str(finished.folder), str(tmp_path / "new")
    runner, cache = CliRunner(), ["--cache-dir", str(tmp_path / "cache"), "--quiet"]
    begun = ["adapt", "--from", run, str(folders[0]), "--steps", "0", "--out", new, *cache]
    assert runner.invoke(app, begun).exit_code == 0
    near = runner.invoke(app, ["check", "--from", new, str(folders[0]), "--quiet"])
    assert near.exit_code == 0, near.output
    assert "No drift" in near.output
    far = runner.invoke(app, ["check", "--from", new, str(folders[1]), "--quiet", "--json"])
    assert far.exit_code == 1, far.output
    assert json.loads(far.output)["statistics"]["probability"] <= 0.01
    text = runner.invoke(app, ["check", "--from", new, str(folders[1]), "--quiet"]).output
    assert "DRIFT" in text
    (tmp_path / "new" / "memory.safetensors").unlink()
    with pytest.raises(DialError, match="what a finished run remembers"):
        runner.invoke(app, ["check", "--from", new, str(folders[0])], catch_exceptions=False)
