"""Every file that DIAL reads: a sound one, the ways in which it goes wrong, and what reads it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest

import dial
from dial import DialError, backbones
from dial.data.cache import read_cached
from dial.data.cache_entries import list_entries
from dial.data.cache_page import to_dict
from dial.data.datasets import open_domain
from dial.data.decode import BadImage, GoodImage, read_image, read_picture, strict_pillow
from dial.data.domain import ImageFiles
from dial.data.evaluation import stream_images
from dial.deployment import memory, runs
from dial.deployment.drift import check_drift
from dial.deployment.origin import open_origin, read_classes
from dial.deployment.prediction import describe, evaluate, predict
from dial.deployment.target import open_target, rows_with_known_labels
from dial.reporting.report import report
from dial.selection import outputs, validators

from ..conftest import SETTINGS
from . import formats, mutations
from .mutations import Mutation
from .sound import PICTURES, QUICK, fit, tabulate


class Reader(NamedTuple):
    """A file in the folder of sound files, and what reads it there."""

    path: str
    read: Callable[[Path], object]
    mutation: Mutation
    cost: int = 1
    """Only one in so many examples is tried."""

    @property
    def name(self) -> str:
        """What the test is called."""
        return f"{self.path}-{self.read.__name__.removeprefix('_')}"


def load(home: Path) -> None:
    """Open a run as `dial predict` does, and use its network."""
    run = runs.load(home / "run")
    (found,) = predict(run, home / "dark" / "circle" / "0.png")
    assert found.label in run.model.classes
    assert run.samples().dim() == 4


def load_several(home: Path) -> None:
    """Open the runs of several targets."""
    found = runs.load_all(home / "several")
    assert found.result


def write_report(home: Path) -> None:
    """Write the page about a run, which has to be one that a browser can read."""
    path = report(home / "run", home / "page.html")
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def resume(home: Path) -> None:
    """Ask for a finished run again: its settings are compared, and it is opened."""
    settings = SETTINGS | {"report": True, "use_cache": False}
    dial.adapt(home / "bright", home / "dark", out=home / "run", resume=True, **settings)


def repeat(home: Path) -> None:
    """Ask for a run by the settings of another; it has been given them itself, not resolved."""
    with pytest.raises(DialError):
        dial.adapt(config=home / "run" / "config.json", out=home / "run", resume=True)


def search(home: Path) -> None:
    """Ask for a finished search again."""
    settings: dict[str, Any] = QUICK | {"method": "dial", "tune": "sparsity", "quiet": False}
    dial.adapt(home / "bright", home / "dark", out=home / "search", resume=True, **settings)


def go_on(home: Path) -> None:
    """Open a finished run to adapt it to other images."""
    assert open_origin(home / "run").digest


def find_target(home: Path) -> None:
    """Find the images of a run again, as `dial label` does."""
    run = runs.load(home / "run")
    images = open_target(run).images
    rows_with_known_labels(run, images)


def watch(home: Path) -> None:
    """Compare images with those that a run was made for."""
    run = runs.load(home / "run")
    assert np.isfinite(check_drift(run, [home / "dark" / "circle"]).statistics.distance)


def judge(home: Path) -> None:
    """Score a run's outputs with every validator."""
    found = outputs.load(home / "run")
    for name in validators.names():
        try:
            assert np.isfinite(validators.score(name, found))
        except DialError:
            continue


def remember(home: Path) -> None:
    """Read what a run remembers of its domains."""
    found = memory.load(home / "run", runs.load(home / "run").model)
    assert found.descriptions.isfinite().all()


def continue_training(home: Path) -> None:
    """Go on from a checkpoint."""
    progress = fit(home / "last.ckpt", resume=True)
    assert progress.step == 3


def build(home: Path, suffix: str) -> None:
    """Build a network with weights from a file."""
    path = home / f"weights.{suffix}"
    assert backbones.create("timm:test_vit", num_classes=3, weights=path).pretrained


def build_from_pickle(home: Path) -> None:
    """Build a network with what `torch.save` wrote."""
    build(home, "pth")


def build_from_safetensors(home: Path) -> None:
    """Build a network with safetensors."""
    build(home, "safetensors")


def open_list(home: Path, name: str = "list.txt") -> None:
    """Open a list of images, and read them."""
    domain = open_domain(home / name)
    assert domain.labels is None or len(domain.labels.indices) == len(domain.images)
    for image in domain.images.decode(resize=4, channels=3, title="", quiet=True):
        assert isinstance(image, GoodImage | BadImage)


def open_plain_list(home: Path) -> None:
    """Open a list of images without labels."""
    open_list(home, "plain.txt")


def score_labels(home: Path) -> None:
    """Score a run on images that were labelled by hand."""
    scores = evaluate(runs.load(home / "run"), home / "labels.csv", skip_bad=True)
    assert 0 <= scores.accuracy <= 1
    assert describe(scores)


def open_shards(home: Path) -> None:
    """Open a tar archive, and read its images."""
    domain = open_domain(home / "shards")
    run = runs.load(home / "run")
    for batch in stream_images(domain.images, preprocessing=run.model.preprocessing, quiet=True):
        assert batch.images.isfinite().all()
    assert domain.name
    assert [*domain.images.names]
    if domain.labels:
        assert domain.labels.counts


def name_classes(home: Path) -> None:
    """Read the names of a model's classes."""
    classes = read_classes(home / "classes.txt")
    assert classes is not None
    assert len(classes) > 1


def _tabulate_copy(folder: Path) -> None:
    """Write the tables of a grid, in a copy: later results are added to those that are there."""
    with TemporaryDirectory() as other:
        copy = Path(shutil.copytree(folder, Path(other) / folder.name))
        before = sorted(copy.rglob("*"))
        try:
            tabulate(copy)
        except DialError:
            assert sorted(copy.rglob("*")) == before
            raise


def read_results(home: Path) -> None:
    """Write the tables of published results."""
    _tabulate_copy(home / "published")


def read_cells(home: Path) -> None:
    """Write the tables of a grid's finished runs."""
    _tabulate_copy(home / "bench")


def use_cache(home: Path) -> None:
    """Read images from the cache, which is made again where it is damaged."""
    images = ImageFiles(tuple(sorted((home / "dark").rglob("*.png"))))
    entry = read_cached(images, resize=8, cache_dir=home / "cache", domain="dark", quiet=True)
    assert entry.pixels is not None
    assert entry.pixels.shape == (len(images), 8, 8, 3)
    assert entry.pixels.dtype == np.uint8
    assert entry.digests.shape == (len(images), 16)
    assert entry.sizes.shape == (len(images), 2)
    assert all(0 <= row < len(images) for row in entry.bad)
    assert len(entry.good) == len(images) - len(entry.bad)


def list_cache(home: Path) -> None:
    """List what is in the cache."""
    assert to_dict(home / "cache", list_entries(home / "cache"), None)


def join_parts(home: Path) -> None:
    """Go on with predictions on Ray of which all parts are there."""
    found = predict(runs.load(home / "run"), home / "dark", ray="local")
    assert found.write(home / "labels.parquet") >= 0
    assert all(isinstance(reason, str) for reason in found.bad.values())


def _reader_of_picture(name: str) -> Reader:
    def decode(home: Path) -> None:
        with strict_pillow():
            image = read_image(home / "pictures" / name, resize=8)
            picture = read_picture(home / "pictures" / name, longest=8)
        if isinstance(image, GoodImage):
            assert image.pixels.shape == (8, 8, 3)
        if not isinstance(picture, BadImage):
            assert picture.mode == "RGB"
            assert max(picture.size) <= 8

    mutation = formats.png if name.endswith(".png") else mutations.raw
    return Reader(f"pictures/{name}", decode, mutation)


_CACHED = "cache/*/"
_CELL = "bench/runs/mnist-optdigits/dial/seed-0/"
READERS = [
    Reader("run/result.json", load, mutations.json_file),
    Reader("run/result.json", write_report, mutations.json_file, 10),
    Reader("several/result.json", load_several, mutations.json_file),
    Reader("run/metrics.jsonl", load, mutations.json_lines),
    Reader("run/metrics.jsonl", write_report, mutations.json_lines, 10),
    Reader("run/config.json", resume, mutations.json_file, 2),
    Reader("run/config.json", repeat, mutations.json_file, 2),
    Reader("run/config.json", go_on, mutations.json_file),
    Reader("run/config.json", find_target, mutations.json_file),
    Reader("run/config.json", write_report, mutations.json_file, 10),
    Reader("run/model.safetensors", load, formats.safetensors),
    Reader("run/samples.safetensors", load, formats.safetensors),
    Reader("run/memory.safetensors", remember, formats.safetensors),
    Reader("run/memory.safetensors", watch, formats.safetensors, 2),
    Reader("run/outputs.safetensors", judge, formats.safetensors, 2),
    Reader("run/evidence.safetensors", write_report, formats.safetensors, 5),
    Reader("last.ckpt", continue_training, formats.checkpoint),
    Reader("search/trials/search.json", search, mutations.json_file, 2),
    Reader("search/trials/sparsity-0.1.json", search, mutations.json_file, 2),
    Reader("search/result.json", search, mutations.json_file, 2),
    Reader("weights.pth", build_from_pickle, formats.checkpoint),
    Reader("weights.safetensors", build_from_safetensors, formats.safetensors),
    Reader("plain.txt", open_plain_list, mutations.raw),
    Reader("list.txt", open_list, mutations.raw),
    Reader("labels.csv", score_labels, mutations.raw),
    Reader("classes.txt", name_classes, mutations.raw),
    Reader("shards/a.tar", open_shards, formats.tar),
    Reader("shards/classes.txt", open_shards, mutations.raw),
    Reader("published/results.jsonl", read_results, mutations.json_lines, 10),
    Reader("published/benchmark.json", read_results, mutations.json_file, 10),
    Reader(f"{_CELL}result.json", read_cells, mutations.json_file, 10),
    Reader(f"{_CELL}config.json", read_cells, mutations.json_file, 10),
    Reader(f"{_CACHED}pixels.npy", use_cache, formats.npy),
    Reader(f"{_CACHED}index.npz", use_cache, formats.npz),
    Reader(f"{_CACHED}about.json", list_cache, mutations.json_file),
    Reader(f"{_CACHED}pixels.npy", list_cache, formats.npy),
    Reader("labels.parquet/_parts.json", join_parts, mutations.json_file),
    Reader("labels.parquet/_part-00000.json", join_parts, mutations.json_file),
    *(_reader_of_picture(name) for name in PICTURES),
]
