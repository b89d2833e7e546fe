"""predict and evaluate: every image labelled once, in order, whatever the layout; scores."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import dial
from dial import DialError, Run
from dial.deployment.prediction import write_csv

from ..commands import run as command
from ..conftest import CLASSES
from ..oracles import network_input


def expected(run: Run, path: Path) -> torch.Tensor:
    """Probabilities by Pillow, NumPy and the bare network."""
    x = network_input(path, run.model.preprocessing)
    with torch.no_grad():
        return run.network(x[None]).softmax(1)[0]


def test_labels_and_confidences_are_the_networks(finished: Run, folders: tuple[Path, Path]) -> None:
    found = list(dial.predict(finished, [folders[1]]))
    paths = sorted(folders[1].rglob("*.png"), key=lambda path: path.parts)
    assert [item.path for item in found] == [str(path) for path in paths]
    for item, path in list(zip(found, paths, strict=True))[::5]:
        probabilities = expected(finished, path)
        assert item.label == CLASSES[int(probabilities.argmax())]
        assert item.confidence == pytest.approx(float(probabilities.max()), abs=1e-3)
        assert [name for name, _ in item.best] == [
            CLASSES[index] for index in probabilities.argsort(descending=True)
        ]
        assert sum(value for _, value in item.best) == pytest.approx(1, abs=1e-5)


def test_files_folders_and_lists_in_one_call(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    one = folders[1] / "circle" / "0.png"
    listed = tmp_path / "list.txt"
    listed.write_text(f"{folders[1]}/square/1.png\n{folders[1]}/square/2.png\n")
    names = [item.path for item in dial.predict(finished, [one, listed, folders[1] / "stripes"])]
    assert names[:3] == [str(one), f"{folders[1]}/square/1.png", f"{folders[1]}/square/2.png"]
    assert len(names) == 3 + 11
    for alone in (one, str(one)):
        assert [item.path for item in dial.predict(finished, alone)] == [str(one)]


def test_csv_with_and_without_the_best_five(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    plain, best = tmp_path / "new" / "plain.csv", tmp_path / "best.csv"
    assert write_csv(dial.predict(finished, [folders[1]]), plain) == 33
    write_csv(dial.predict(finished, [folders[1]]), best, top=True)
    rows, more = (list(csv.DictReader(file.read_text().splitlines())) for file in (plain, best))
    assert [*rows[0]] == ["path", "label", "confidence"]
    assert [*more[0]] == [*rows[0], "label_2", "confidence_2", "label_3", "confidence_3"]
    for row, full in zip(rows, more, strict=True):
        assert row.items() <= full.items()
        assert {full["label"], full["label_2"], full["label_3"]} == {*CLASSES}
    assert not plain.with_name("plain.csv.partial").exists()


def test_the_command_tells_which_files_it_could_not_read(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "good.png").write_bytes((folders[1] / "circle" / "0.png").read_bytes())
    (mixed / "broken.jpg").write_bytes(b"not an image")
    out = tmp_path / "out.csv"
    result = command("predict", finished.folder, mixed, "--out", out, "--json", "--quiet")
    assert result.returncode == 0
    assert json.loads(result.stdout)["images"] == 1
    assert [*json.loads(result.stdout)["unreadable"]] == [str(mixed / "broken.jpg")]
    assert "1 files could not be read" in result.stderr
    assert "broken.jpg" in result.stderr
    assert len(out.read_text().splitlines()) == 2


def test_a_reader_that_has_enough_ends_the_command_quietly(
    finished: Run, folders: tuple[Path, Path]
) -> None:
    code = "from dial.cli import main; main()"
    images = [str(folders[1])] * 200  # more than a pipe holds
    command = [sys.executable, "-c", code, "predict", str(finished.folder), *images, "--quiet"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "path,label,confidence\n"
        process.stdout.close()
        assert process.stderr.read() == ""


def test_scores_are_those_of_the_predictions(finished: Run, folders: tuple[Path, Path]) -> None:
    scores = dial.evaluate(finished, folders[1])
    predicted = list(dial.predict(finished, [folders[1]]))
    right = [Path(item.path).parent.name == item.label for item in predicted]
    assert scores.accuracy == pytest.approx(np.mean(right))
    assert scores.accuracy == pytest.approx(finished.result["target_accuracy"])
    assert sum(count for _, count in scores.classes.values()) == scores.images == 33
    assert scores.classes["circle"] == (sum(right[:11]), 11)


def test_a_part_of_the_classes_is_enough_to_score(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "square").symlink_to(folders[1] / "square")
    assert [*dial.evaluate(finished, tmp_path / "part").classes] == ["square"]


def test_bad_files_are_not_scored_silently(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "l" / "square").mkdir(parents=True)
    (tmp_path / "l" / "square" / "bad.png").touch()
    with pytest.raises(DialError, match="1 bad: 1 empty"):
        dial.evaluate(finished, tmp_path / "l")
    with pytest.raises(DialError, match="1 files, none of which can"):
        dial.evaluate(finished, tmp_path / "l", skip_bad=True)
    good = (folders[1] / "square" / "3.png").read_bytes()
    (tmp_path / "l" / "square" / "good.png").write_bytes(good)
    scores = dial.evaluate(finished, tmp_path / "l", skip_bad=True)
    assert (scores.images, scores.unreadable) == (1, 1)


def test_the_command_evaluates(finished: Run, folders: tuple[Path, Path]) -> None:
    shown = command("evaluate", finished.folder, folders[1], "--quiet")
    assert shown.returncode == 0
    assert f"accuracy {finished.result['target_accuracy']:.1%} on 33 images" in shown.stdout
    told = command("evaluate", finished.folder, folders[1], "--json", "--quiet")
    assert json.loads(told.stdout)["classes"]["square"]["images"] == 11


def test_a_device_that_is_not_there_is_an_error(finished: Run, folders: tuple[Path, Path]) -> None:
    with pytest.raises(DialError, match=r"a device 'tpu', got .*; fix: use --device cpu, cuda"):
        dial.predict(finished, [folders[1]], device="tpu")


def test_the_command_takes_a_short_way(finished: Run, folders: tuple[Path, Path]) -> None:
    """Few files of this package run in a prediction, and none about layers or training."""
    code = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "files = set()\n"
        "def note(frame, event, _):\n"
        "    if event == 'call' and frame.f_code.co_flags & 1:  # functions, not class bodies\n"
        "        files.add(frame.f_code.co_filename)\n"
        "threading.setprofile(note)\n"
        "sys.setprofile(note)\n"
        "from dial.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    sys.setprofile(None)\n"
        "    root = Path(sys.modules['dial'].__file__).parent\n"
        "    ours = [Path(f).relative_to(root) for f in files if Path(f).is_relative_to(root)]\n"
        "    print(*ours, sep='\\n', file=sys.stderr)\n"
    )
    arguments = ["predict", str(finished.folder), str(folders[1]), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    ours = {Path(line) for line in done.stderr.splitlines()}
    assert Path("deployment/prediction.py") in ours
    ours.discard(Path("__init__.py"))  # asked for names by each `from dial import`, no more
    assert len(ours) <= 24, sorted(ours)
    ours.discard(Path("training/settings.py"))  # the options of `adapt` are made from it
    ours.discard(Path("training/run_files.py"))  # what a run's folder holds
    assert not {path.parts[0] for path in ours} & {"layers", "references", "methods", "training"}
