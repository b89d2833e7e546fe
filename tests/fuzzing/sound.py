"""One sound file of every kind that DIAL reads, from small real runs."""

import csv
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image
from safetensors.torch import save_file

import dial
from dial import backbones, methods
from dial.data.batches import Batches
from dial.data.cache import read_cached
from dial.data.domain import ImageFiles, Labels
from dial.data.hand_labels import COLUMNS
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.transforms import Preprocessing
from dial.deployment.parts import Labelled, Part
from dial.deployment.prediction import predict
from dial.training import engine
from dial.training.clock import Clock
from dial.training.engine import Progress
from dial.training.settings import Settings

from ..conftest import SETTINGS
from ..methods import small

QUICK = SETTINGS | {"method": "source_only", "epochs": 1, "steps": 1, "use_cache": False}
PICTURES = {
    "a.jpg": {"quality": 90},
    "progressive.jpg": {"progressive": True},
    "cmyk.jpg": {},
    "a.png": {},
    "palette.png": {},
    "grey16.png": {},
    "a.bmp": {},
    "a.webp": {"lossless": True},
    "a.tif": {"compression": "tiff_lzw"},
    "jpeg.tif": {"compression": "jpeg"},
    "float.tif": {},
    "a.gif": {},
    "a.ppm": {},
    "a.pbm": {},
}
"""Images of every format that is read, with the options to write them."""


def make_home(home: Path, domains: tuple[Path, Path]) -> Path:
    """Write everything below a folder."""
    _make_runs(home, domains)
    _make_lists(home)
    _make_weights(home)
    _make_results(home)
    images = ImageFiles(tuple(sorted((home / "dark").rglob("*.png"))))
    read_cached(images, resize=8, cache_dir=home / "cache", domain="dark", quiet=True)
    fit(home / "last.ckpt", resume=False)
    for name, options in PICTURES.items():
        picture(name).save(home / "pictures" / name, **options)
    return home


def _make_runs(home: Path, domains: tuple[Path, Path]) -> None:
    for domain in domains:
        shutil.copytree(domain, home / domain.name)
    bright, dark = home / "bright", home / "dark"
    dial.adapt(bright, dark, out=home / "run", **SETTINGS | {"report": True, "use_cache": False})
    for name in ("last.ckpt", "report.html"):
        (home / "run" / name).unlink()
    dial.adapt(bright, dark, out=home / "search", tune="sparsity", **QUICK | {"method": "dial"})
    for checkpoint in (home / "search").rglob("last.ckpt"):
        checkpoint.unlink()
    result = json.loads((home / "run" / "result.json").read_text())
    (home / "several").mkdir()
    for name in ("dark", "dim"):
        shutil.copytree(home / "run", home / "several" / name)
    several = result | {"target": "dark + dim", "targets": {"dark": result, "dim": result}}
    (home / "several" / "result.json").write_text(json.dumps(several))
    shutil.copy(home / "run" / "metrics.jsonl", home / "several")
    about = predict(dial.runs.load(home / "run"), dark, ray="local")
    (part,) = about.parts()
    _keep_part(home / "labels.parquet", about, part)


def _keep_part(folder: Path, predictions: object, part: Part) -> None:
    """Leave what a killed `dial predict --ray` leaves: here it had done all parts."""
    from dial.deployment import parts

    folder.mkdir()
    names = [*part.names]
    found = Labelled(part.number, [], {names[0]: "truncated"})
    parts._begin(folder, predictions.model, [part], top=False)
    path = folder / "part-00000.parquet"
    path.write_bytes(b"")
    about = {"images": len(names) - 1, "unreadable": found.bad}
    parts._record(path).write_text(json.dumps(about))


def _make_lists(home: Path) -> None:
    files = sorted((home / "dark").rglob("*.png"))[::4]
    names = [(path.relative_to(home).as_posix(), path.parent.name) for path in files]
    (home / "plain.txt").write_text("".join(f"{name}\n" for name, _ in names))
    (home / "list.txt").write_text("".join(f"{name} {label}\n" for name, label in names))
    (home / "classes.txt").write_text("circle\nsquare\nstripes\n")
    with (home / "labels.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(COLUMNS)
        for name, label in names:
            table.writerow((name, label, label, "", "score", "33", "random", "0", "run"))
    (home / "shards").mkdir()
    with tarfile.open(home / "shards" / "a.tar", "w") as archive:
        for number, path in enumerate(files[:4]):
            file = home / "label"
            file.write_text(str(number % 3) if number else json.dumps({"label": 0}))
            archive.add(path, f"{number:03}.png")
            archive.add(file, f"{number:03}.{'cls' if number else 'json'}")
            file.unlink()
    shutil.copy(home / "classes.txt", home / "shards")
    (home / "pictures").mkdir()


def picture(name: str) -> Image.Image:
    """An image in the mode that its name says."""
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    match name.partition(".")[0]:
        case "cmyk":
            return image.convert("CMYK")
        case "palette":
            return image.quantize(16)
        case "grey16":
            return Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
        case "float":
            return Image.fromarray(pixels[..., 0].astype(np.float32) / 255)
    if name.endswith(".gif"):
        return image.quantize(16)
    return image.convert("1") if name.endswith(".pbm") else image


def _make_weights(home: Path) -> None:
    network = backbones.create("timm:test_vit", num_classes=3, weights="none").network
    torch.save({"state_dict": network.state_dict()}, home / "weights.pth")
    save_file(network.state_dict(), home / "weights.safetensors")


def _make_results(home: Path) -> None:
    """A grid of which two cells are finished."""
    bench = home / "bench"
    for row, seed in (("source_only", 0), ("dial", 0)):
        folder = bench / "runs" / "mnist-optdigits" / row / f"seed-{seed}"
        shutil.copytree(home / "run", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    record = {"benchmark": "digits", "preset": "digits_cnn", "settings": {"steps": 1}}
    (bench / "benchmark.json").write_text(json.dumps(record))
    tabulate(bench)
    shutil.copytree(bench, home / "published", ignore=shutil.ignore_patterns("runs"))


def tabulate(folder: Path) -> object:
    """Write the tables of a grid's finished cells."""
    from dial.benchmarking import bench

    return bench("digits", out=folder, tables_only=True, quiet=True)


def fit(checkpoint: Path, *, resume: bool) -> Progress:
    """Train a few steps, or go on from the checkpoint of the last one."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    images = ArrayPixels(pixels, digests=array_digests(pixels))
    labels = Labels.from_names([*"abcd"] * 3)
    preprocessing = Preprocessing(size=8, resize=8)
    batches = Batches(images, labels, images, preprocessing=preprocessing, batch_size="4+4")
    method = methods.create("dial", {"start": "random", "head": False})
    torch.manual_seed(0)
    trainee = method.prepare(small.backbone())
    settings = Settings(steps=3, epochs=1)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    return engine.fit(
        trainee,
        method,
        batches,
        settings=settings,
        fabric=fabric,
        checkpoint=checkpoint,
        clock=Clock(),
        resume=resume,
    )
