"""Seeds every test; makes small images and folders; finds the real ones where there are any."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dial  # noqa: F401 - a test may import torchvision, and needs the guard before

torch.set_num_threads(1)  # small tensors gain nothing from more

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


@pytest.fixture(scope="session")
def office31() -> Path:
    """The folder of Office-31, where this machine has it."""
    repository = Path(__file__).resolve().parents[1]
    data = Path(os.environ.get("DIAL_DATA") or repository.parent / "shared" / "data")
    if not (data / "office31").is_dir():
        pytest.skip("Office-31 is neither in DIAL_DATA nor in ../shared/data")
    return data / "office31"
