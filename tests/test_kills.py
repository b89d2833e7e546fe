"""Every long command, killed at any moment and started again, ends as if nothing had happened."""

import json
import random
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import dial

from . import killing
from .conftest import CLASSES, SETTINGS, MakeImage, picture

pytestmark = pytest.mark.timeout(3600)  # the slow ones start a process 40 times

_TRAINING = "--backbone timm:test_resnet --weights none --image-size 32 --lr 0.01"
_SHORT = "--batch-size 8+4 --cache-dir cache --epochs {epochs}"


@dataclass(frozen=True)
class Command:
    """A command as it is given first, and the words that are added when it is started again."""

    words: str
    again: str = ""
    kills: int = 1
    """So many times it is killed where it gives a file its name, without the slow tests,
    which kill it there too."""


RESUMED = "--resume"
COMMANDS = {
    "adapt": Command(
        f"adapt {{bright}} {{dark}} --out run --no-report {_TRAINING} {_SHORT}", RESUMED, kills=4
    ),
    "adapt with a report": Command(
        f"adapt {{bright}} {{dark}} --out run {_TRAINING} {_SHORT}", RESUMED, kills=0
    ),
    "adapt, much to read": Command(
        f"adapt {{large}} {{dark}} --out run --method frozen --no-report {_TRAINING} "
        "--cache-dir cache",
        RESUMED,
        kills=0,
    ),
    "adapt to two targets": Command(
        f"adapt {{bright}} --target {{dark}} --target {{many}} --out run --no-report "
        f"{_TRAINING} {_SHORT}",
        RESUMED,
        kills=0,
    ),
    "adapt --from": Command(
        f"adapt --from {{root}}/finished {{dark}} --out run --no-report {_SHORT}", RESUMED
    ),
    "adapt --entropy auto": Command(
        f"adapt {{many}} {{dark}} --out run --entropy auto --holdout 0.75 --no-report "
        f"{_TRAINING} {_SHORT}",
        RESUMED,
        kills=0,
    ),
    "bench": Command(
        "bench digits --out grid --tasks mnist-optdigits --methods source_only,adabn --seeds 0 "
        "--steps {epochs} --batch-size 8+8"
    ),
    "predict": Command("predict {root}/finished {many} {dark} --out labels.csv --top"),
    "export to ONNX": Command("export {root}/finished network.onnx", kills=0),
    "export to torch.export": Command("export {root}/finished network.pt2", kills=0),
    "export to safetensors": Command("export {root}/finished network.safetensors"),
    "report": Command("report {root}/finished --out page.html"),
    "label": Command("label {root}/finished --out page.html --count 20"),
}


@pytest.fixture(scope="module")
def places(
    folders: tuple[Path, Path], make_image: MakeImage, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Images, and a finished run, by the names that the commands have for them."""
    root, generator = tmp_path_factory.mktemp("kills"), np.random.default_rng(0)
    for kind in CLASSES:
        (root / "many" / kind).mkdir(parents=True)
        for index in range(14):
            image = picture(kind, generator, dark=False)
            image.save(root / "many" / kind / f"{index}.png")
        for index in range(40):
            make_image(root / "large" / kind / f"{index}.png", seed=index, size=(400, 400))
    options = SETTINGS | {"report": True, "cache_dir": str(root / "cache")}
    dial.adapt(*folders, out=root / "finished", **options)
    images = {"many": root / "many", "large": root / "large"}
    return images | {"bright": folders[0], "dark": folders[1], "root": root}


@dataclass(frozen=True)
class Trial:
    """A command, and the folder for those that it runs in."""

    command: Command
    values: dict[str, Any]
    home: Path

    def words(self, *, again: bool = False) -> list[str]:
        words = [self.command.words, self.command.again] if again else [self.command.words]
        return " ".join(words).format(**self.values).split()

    def folder(self, name: str) -> Path:
        """Returns a new folder to run the command in."""
        folder = self.home / name
        folder.mkdir(parents=True)
        return folder

    def start_again(self, killed: Path, whole: dict[str, Any]) -> None:
        """See that no file is half-written; end the killed command and compare what it leaves."""
        check_that_files_are_whole(killed, whole)
        killing.run(self.words(again=True), killed)
        ours = content(killed)
        assert ours.keys() == whole.keys(), killed
        assert [name for name in ours if ours[name] != whole[name]] == [], killed
        shutil.rmtree(killed)


@pytest.fixture
def trial(request: pytest.FixtureRequest, places: dict[str, Path]) -> Trial:
    name, kind, epochs = request.param
    home = places["root"] / f"{name}, {kind}".replace(" ", "-")
    return Trial(COMMANDS[name], places | {"epochs": epochs}, home)


def each_of(names: Iterable[str], kind: str, *, epochs: int) -> pytest.MarkDecorator:
    names = [*names]
    cases = [(name, kind, epochs) for name in names]
    return pytest.mark.parametrize("trial", cases, ids=names, indirect=True)


@each_of([name for name in COMMANDS if COMMANDS[name].kills], "some", epochs=2)
def test_killed_before_a_file_gets_its_name(trial: Trial) -> None:
    whole = trial.folder("whole")
    changes = killing.run(trial.words(), whole)
    renames = [number for number, change in enumerate(changes) if change == killing.RENAME]
    chosen = random.Random(0).sample(renames, min(trial.command.kills, len(renames)))
    kill_before_changes(chosen, trial, whole)


@pytest.mark.slow
@each_of(COMMANDS, "all", epochs=2)
def test_killed_before_any_change_of_a_file(trial: Trial) -> None:
    whole = trial.folder("whole")
    changes = killing.run(trial.words(), whole)
    kill_before_changes(range(len(changes)), trial, whole)
    print(f"\n{trial.home.name}: {len(changes)} kills")  # noqa: T201


def kill_before_changes(numbers: Iterable[int], trial: Trial, whole: Path) -> None:
    left = content(whole)
    for number in numbers:
        killed = trial.folder(f"killed-{number}")
        killing.kill_before_change(number, trial.words(), killed)
        trial.start_again(killed, left)


@pytest.mark.slow
@each_of(COMMANDS, "random", epochs=8)
def test_killed_at_random_moments(trial: Trial) -> None:
    whole = trial.folder("whole")
    moments = killing.random_moments(trial.words(), whole, count=20)
    left, kills = content(whole), 0
    for number, moment in enumerate(moments):
        killed = trial.folder(f"killed-{number}")
        kills += killing.kill_after(moment, trial.words(), killed)
        trial.start_again(killed, left)
    print(f"\n{trial.home.name}: {kills} kills")  # noqa: T201
    assert kills >= 15  # the last moments may come when it has just ended


def files_in(folder: Path) -> dict[str, Path]:
    """Returns the files in a folder by their names, but for three.

    What killed builds leave in a cache is removed after a day: see
    `test_leftovers_of_killed_builds_are_swept`. `.ses` is a number that ONNX Runtime draws, and
    Python's `tempfile` tries with four bytes whether a folder can be written.
    """
    names = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    ours = {n: p for n, p in names.items() if p.is_file() and n != "tmp/.ses"}
    ours = {n: p for n, p in ours.items() if not is_trial_of_python(n, p)}
    return {n: p for n, p in ours.items() if not n.startswith("cache/.partial-")}


def is_trial_of_python(name: str, path: Path) -> bool:
    return bool(re.fullmatch(r"tmp/[a-z0-9_]{8}", name)) and path.read_bytes() in (b"", b"blat")


def check_that_files_are_whole(killed: Path, whole: dict[str, Any]) -> None:
    """See that all files can be read, and that those that are written only once are as they end."""
    for name, path in files_in(killed).items():
        if path.name.startswith(".") or path.suffix in (".partial", ".lock"):
            continue
        found = read(path)
        if path.suffix in (".safetensors", ".npy", ".npz", ".onnx", ".pt2"):
            assert found == whole[name], path
        elif isinstance(found, bytes):
            assert found.endswith((b"\n", b"</html>")), path


def content(folder: Path) -> dict[str, Any]:
    """Returns what the files in a folder hold, but for times, by their names."""
    return {name: read(path) for name, path in files_in(folder).items()}


def read(path: Path) -> Any:
    """Returns what a whole file holds, but for times."""
    if path.name == "timing.json":
        return sorted(json.loads(path.read_text()))
    if path.suffix == ".json":
        return without_times(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [without_times(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".html":
        return re.sub(rb"\b[\d.]+ (s|min)\b", b"", path.read_bytes())
    if path.suffix == ".ckpt":
        state = torch.load(path, weights_only=True)
        trainee = {name: tensor.numpy().tobytes() for name, tensor in state["trainee"].items()}
        return trainee, without_times(state["progress"])
    return read_tensors(path) if path.suffix == ".safetensors" else path.read_bytes()


def read_tensors(path: Path) -> Any:
    """Returns the metadata and the tensors of a file, which has metadata in any order."""
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    return about, {name: (x.dtype, x.shape, x.tobytes()) for name, x in tensors.items()}


def without_times(value: Any) -> Any:
    """Returns a value without the entries that hold times."""
    if isinstance(value, dict):
        times = "seconds", "spent"
        return {name: without_times(each) for name, each in value.items() if name not in times}
    return [without_times(each) for each in value] if isinstance(value, list) else value
