"""Seeds every test; makes small images and folders; finds the real ones where there are any."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import dial
from dial import Run, methods
from dial.torchvision_guard import prepare_torchvision
from dial.training import engine

prepare_torchvision()  # tests import torchvision and timm themselves
torch.set_num_threads(1)  # small tensors gain nothing from more

CLASSES = ("circle", "square", "stripes")
WITH_SOURCE = [name for name in methods.names() if methods.kind(name).needs_source]
SETTINGS: dict[str, Any] = {
    "backbone": "timm:test_resnet",
    "weights": "none",
    "image_size": 32,
    "epochs": 2,
    "batch_size": "8+4",
    "lr": 0.01,
    "quiet": True,
    "report": False,  # takes its time; what is about it asks for it
}

MakeImage = Callable[..., Path]
MakeFolder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_image() -> MakeImage:
    """Write an image of noise that `seed` decides; the suffix decides the format."""

    def make(path: Path, *, seed: int = 0, size: tuple[int, int] = (24, 20)) -> Path:
        noise = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).resize(size).save(path)
        return path

    return make


@pytest.fixture
def make_folder(tmp_path: Path, make_image: MakeImage) -> MakeFolder:
    """Make class folders with so many images each, all different."""

    def make(name: str, classes: Mapping[str, int], *, seed: int = 0) -> Path:
        root = tmp_path / name
        for number, (folder, count) in enumerate(classes.items()):
            for image in range(count):
                path = root / folder / f"{image:03}.png"
                make_image(path, seed=seed + 1000 * number + image)
        return root

    return make


def picture(kind: str, generator: np.random.Generator, *, dark: bool) -> Image.Image:
    """A 40x40 drawing of one of the classes, in the style of one of two domains."""
    y, x = np.mgrid[:40, :40] - generator.integers(15, 25, size=2)[:, None, None]
    radius = generator.integers(8, 14)
    shape = {
        "circle": x**2 + y**2 < radius**2,
        "square": np.maximum(abs(x), abs(y)) < radius,
        "stripes": (x // 4) % 2 == 0,
    }[kind]
    noise = generator.normal(0, 10, size=(40, 40, 3))
    colour = np.where(shape[..., None], (60, 40, 90) if dark else (250, 220, 180), (20, 30, 10))
    return Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two domains of the same three classes, bright drawings and dark ones."""
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for domain, dark in (("bright", False), ("dark", True)):
        for kind in CLASSES:
            folder = root / domain / kind
            folder.mkdir(parents=True)
            for index in range(11):
                picture(kind, generator, dark=dark).save(folder / f"{index}.png")
    return root / "bright", root / "dark"


def move_into_shuffled_folders(target: Path, into: Path) -> Path:
    """Copy a domain's images, each into the folder of another's class."""
    files = sorted(target.rglob("*.png"))
    names = [path.parent.name for path in files]
    random.Random(1).shuffle(names)
    for path, name in zip(files, names, strict=True):
        (into / name).mkdir(parents=True, exist_ok=True)
        (into / name / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    return into


def kill_again_and_again(
    start: Callable[[], subprocess.Popen[str]], *, begun: Path, kills: int, longest: float
) -> int:
    """Start a process and kill it at a random moment after `begun` exists; how often it was."""
    chance = random.Random(0)
    for done in range(kills):
        process = start()
        while process.poll() is None and not begun.exists():
            time.sleep(0.01)
        try:
            process.wait(timeout=chance.uniform(0.2, longest))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        else:
            return done
        finally:
            if process.stderr is not None:
                process.stderr.close()
    return kills


def check_that_it_resumes(run: Run, folders: tuple[Path, Path], given: dict[str, Any]) -> Run:
    """Stop the same run in its second epoch and resume it: the model must be the same."""
    again = given | {"out": run.folder.with_name("stopped")}
    with (
        pytest.raises(engine.Interrupted),
        patch("dial.console.Reporter.epoch", side_effect=[None, engine.Interrupted]),
    ):
        dial.adapt(*folders, **again)
    resumed = dial.adapt(*folders, **again, resume=True)
    one, two = (load_file(each.folder / "model.safetensors") for each in (run, resumed))
    assert all(torch.equal(one[name], two[name]) for name in one)
    return resumed


@pytest.fixture(scope="session")
def finished(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run that is over, with a DA-layer on the logits."""
    root = tmp_path_factory.mktemp("finished")
    options = SETTINGS | {"cache_dir": str(root / "cache"), "align_logits": True}
    return dial.adapt(*folders, out=root / "run", **options)


@pytest.fixture(scope="session")
def office31() -> Path:
    """The folder of Office-31, where this machine has it."""
    repository = Path(__file__).resolve().parents[1]
    data = Path(os.environ.get("DIAL_DATA") or repository.parent / "shared" / "data")
    if not (data / "office31").is_dir():
        pytest.skip("Office-31 is neither in DIAL_DATA nor in ../shared/data")
    return data / "office31"
