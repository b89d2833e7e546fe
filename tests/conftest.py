"""Seeds every test; makes small images and folders; finds the real ones where there are any."""

import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import dial
from dial import Run, cli, methods
from dial.torchvision_guard import prepare_torchvision
from dial.training import engine

from .few_digits import CHANGES as FEW_DIGITS

prepare_torchvision()  # tests import torchvision and timm themselves
torch.set_num_threads(1)  # small tensors gain nothing from more
os.environ["RAY_AUTH_MODE"] = "token"
os.environ.setdefault("RAY_AUTH_TOKEN", uuid.uuid4().hex)  # of our own Ray; processes share it
os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "."  # as the command does, before anything imports Ray

CLASSES = ("circle", "square", "stripes")
USER = 65534  # nobody
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

QUICK = ["--backbone", "timm:test_resnet", "--weights", "none", "--image-size", "32"]
QUICK += ["--batch-size", "4+4", "--epochs", "1", "--no-cache", "--quiet"]

MakeImage = Callable[..., Path]
MakeFolder = Callable[..., Path]
Call = Callable[..., "Told"]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the digits, which is enough for runs whose results nobody looks at closely."""
    for name, value in FEW_DIGITS.items():
        monkeypatch.setattr(name, value)


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


@dataclass(frozen=True)
class SmallCluster:
    """A Ray of two CPUs on this machine, and the process that started it."""

    address: str
    pid: int

    def workers(self, name: str) -> list[int]:
        """The processes of this Ray that are at a task of this name."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        ours, found = {self.pid}, []
        while new := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= new
        for pid in ours:
            with suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_text()
                found += [pid] if title.startswith(f"ray::{name}") else []
        return found


_HOLD = """
import sys, ray
options = {"num_cpus": 2, "include_dashboard": False, "logging_level": "ERROR"}
context = ray.init(address="local", log_to_driver=False, **options)
print(context.address_info["address"], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[SmallCluster]:
    """A Ray that runs in other processes, as a cluster does; it ends with the tests."""
    if find_spec("ray") is None:  # not imported here: what it prints is settled before
        pytest.skip('needs pip install "dial-da[ray]"')
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stdout is not None
        yield SmallCluster(process.stdout.readline().strip(), process.pid)
        process.communicate()  # the end of its input is the end of it


@pytest.fixture(scope="session")
def office31() -> Path:
    """The folder of Office-31, where this machine has it."""
    repository = Path(__file__).resolve().parents[1]
    data = Path(os.environ.get("DIAL_DATA") or repository.parent / "shared" / "data")
    if not (data / "office31").is_dir():
        pytest.skip("Office-31 is neither in DIAL_DATA nor in ../shared/data")
    return data / "office31"


def slow(value: Any) -> Any:
    """Returns a parameter whose tests are left to `make test-all`."""
    return pytest.param(value, marks=pytest.mark.slow)


class Told(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command in this process, with all that surrounds it but the interpreter's start."""

    def run(*arguments: object) -> Told:
        monkeypatch.setattr(sys, "argv", ["dial", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Told(code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def pair(make_folder: MakeFolder) -> tuple[Path, Path]:
    """A source with two classes and a target without labels."""
    source = make_folder("source", {"mug": 6, "pen": 6})
    return source, make_folder("target", {".": 8}, seed=500)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for very little."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mount(place, "size=64k", "-t", "tmpfs", "tmpfs")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run([shutil.which("umount") or "", "--lazy", str(place)], check=True)


def mount(place: Path, options: str, *arguments: str) -> None:
    command = [shutil.which("mount") or "", "-o", options, *arguments, str(place)]
    subprocess.run(command, check=True, capture_output=True)


def refused(told: Told, *messages: str) -> None:
    """One message for a user, and the code that scripts look at."""
    assert told.code == 2, told
    assert told.err.startswith("dial: error: ")
    assert told.err.count("dial: error: ") == 1
    assert "Traceback" not in told.err
    assert told.out == ""
    for message in messages:
        assert message in told.err


def as_user(task: Callable[[], object]) -> str:
    """Returns what a task comes to for a user who may not write, whoever runs the tests."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        if os.getuid() == 0:
            os.setgid(USER)
            os.setuid(USER)
        try:
            text = str(task())
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, encoding="utf-8") as pipe:
        return pipe.read()
