"""What is made to be shared says nothing about the machine it was made on, and has no image."""

import base64
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageCms, PngImagePlugin
from torch import Tensor

import dial
from dial.data.domain import ImageFiles
from dial.deployment import runs
from dial.reporting.pictures import encode_first

from .conftest import MakeImage

HOME, USER, FOLDER = "zqhome", "zquser", "zqfolder"
NETWORK = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())
        self.fc = nn.Linear(8, 2)
    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))
"""
SCRIPT = """
import sys
from pathlib import Path
import dial
from net import Net
here = Path.cwd()
options = dict(steps=2, batch_size="4+4", image_size=32, quiet=True, cache_dir=str(here / "cache"))
run = dial.adapt(here / "source", here / "target", out=here / "run", backbone=Net(), **options)
for suffix in ("onnx", "pt2", "safetensors"):
    dial.export(run, here / f"shared.{suffix}")
"""
EXPORTS = ("shared.onnx", "shared.pt2", "shared.safetensors")
OF_THE_RUN = (
    *("model", "samples", "evidence", "memory", "outputs"),
    *("report.html", "MODEL_CARD.md", "last.ckpt", "metrics.jsonl"),
)


@dataclass(frozen=True)
class Made:
    """A folder in which somebody made a run with a network of their own, and exported it."""

    folder: Path
    secrets: tuple[str, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, make_image: MakeImage) -> Made:
    home = tmp_path_factory.mktemp("machine") / HOME
    folder = home / USER / FOLDER
    for number in range(32):
        domain, kind = ("source", "target")[number % 2], ("mug", "pen")[number // 2 % 2]
        make_image(folder / domain / kind / f"{number}.png", seed=number)
    (folder / "net.py").write_text(NETWORK)
    environment = {"HOME": str(home), "USER": USER, "LOGNAME": USER, "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(folder), *sys.path])
    subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env=os.environ | environment | {"PYTHONPATH": path},
        check=True,
    )
    places = (HOME, USER, FOLDER, str(Path(torch.__file__).parents[1]), sys.prefix)
    own = str(Path(dial.__file__).parent), os.path.abspath(os.curdir)
    return Made(folder, (*places, *own, str(home.parent)))


def contents(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields a file, what is packed in it, and the pictures inside a page."""
    yield name, data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield f"{name}!{member}", member.encode()
                yield from contents(f"{name}!{member}", archive.read(member))
    for number, code in enumerate(re.findall(rb"data:image/[a-z+]+;base64,([\w+/=]+)", data)):
        picture = base64.b64decode(code)
        yield f"{name}!{number}", picture
        if picture[:4] != b"<svg" and picture[:5] != b"<?xml":
            yield f"{name}!{number} (texts)", repr(Image.open(io.BytesIO(picture)).info).encode()


def found(file: Path, secrets: tuple[str, ...]) -> list[tuple[str, str]]:
    parts = [*contents(file.name, file.read_bytes())]
    return [(name, each) for name, data in parts for each in secrets if each.encode() in data]


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_has_no_path_of_the_machine(made: Made, name: str) -> None:
    assert found(made.folder / name, made.secrets) == []


@pytest.mark.parametrize("name", OF_THE_RUN)
def test_a_run_has_paths_in_its_settings_and_result_alone(made: Made, name: str) -> None:
    file = made.folder / "run" / (name if "." in name else f"{name}.safetensors")
    assert found(file, made.secrets) == []


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_the_search_finds_what_is_there(made: Made, name: str) -> None:
    seen = found(made.folder / "run" / name, made.secrets)
    assert {HOME, USER, FOLDER} <= {secret for _, secret in seen}


@pytest.fixture(scope="module")
def images(made: Made) -> Tensor:
    """Images of the target as they are kept with the run: they are what exports are tried on."""
    space: dict[str, type[torch.nn.Module]] = {}
    exec(NETWORK, space)  # noqa: S102 - the one above
    return runs.load(made.folder / "run", backbone=space["Net"]()).samples()


@pytest.mark.parametrize("name", [*EXPORTS, "run/model.safetensors", "run/last.ckpt"])
def test_what_holds_a_network_holds_no_image(made: Made, images: Tensor, name: str) -> None:
    data = (made.folder / name).read_bytes()
    layouts = images[:, 1, 16], images[:, :, 16].mT  # channels first, and last
    rows = [row.contiguous().numpy().tobytes() for layout in layouts for row in layout]
    assert len(rows) == 2 * 16
    assert not [row for _, part in contents(name, data) for row in rows if row in part]


def test_a_page_shows_pictures_without_what_cameras_and_people_wrote(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E], exif[0x8825] = "secret words", {1: "N", 2: (52.0, 31.0, 7.0)}  # GPS
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "secret words")
    kinds = {
        "jpg": {"comment": b"secret words", "xmp": b"secret words"},
        "png": {"pnginfo": text},
        "webp": {"xmp": b"secret words"},
    }
    paths = []
    for suffix, more in kinds.items():
        for side in (40, 300):  # a small one is kept pixel by pixel
            paths.append(tmp_path / f"{side}.{suffix}")
            plain = Image.effect_noise((side, side), 50).convert("RGB")
            plain.save(paths[-1], exif=exif, icc_profile=profile, **more)
            with Image.open(paths[-1]) as written:
                assert "exif" in written.info
    pictures, bad = encode_first(ImageFiles(tuple(paths)), range(len(paths)), len(paths))
    assert not bad
    for picture in pictures.values():
        data = base64.b64decode(picture.source.partition(",")[2])
        shown = Image.open(io.BytesIO(data))
        assert not {"exif", "icc_profile", "xmp", "Comment"} & {*shown.info}
        assert not shown.getexif()
        assert b"secret" not in data
