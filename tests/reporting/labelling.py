"""Samples to label that no run drew, and what a page and its table hold."""

import base64
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dial.reporting.label import Sample
from dial.reporting.pictures import Picture, budget_of, encode


def photograph(seed: int, side: int = 1000) -> Image.Image:
    """A picture without noise but with edges everywhere: overlapping disks of all colors."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    pixels = np.zeros((side, side, 3), np.uint8)
    for _ in range(60):
        center, radius = random.uniform(0, side, 2), random.uniform(0.02, 0.2) * side
        inside = (x - center[0]) ** 2 + (y - center[1]) ** 2 < radius**2
        shade = 0.6 + 0.4 * np.sin(x[inside] / random.uniform(3, 40))
        pixels[inside] = (random.integers(60, 256, 3) * shade[:, None]).astype(np.uint8)
    return Image.fromarray(pixels)


def make_sample(classes: int, images: int = 12, *, picture: Picture | None = None) -> Sample:
    """A sample of plain pictures; image `i` is of class `i % classes`, every fourth is wrong."""
    picture = picture or encode(photograph(0, 160), budget_of(images))
    wrong = [int(row % 4 == 3) for row in range(images)]
    return Sample(
        purpose="score",
        seed=0,
        population=500,
        names=tuple(f'folder, "{row}"/<b>{row}</b>.png' for row in range(images)),
        pictures=(picture,) * images,
        predicted=tuple((row + wrong[row]) % classes for row in range(images)),
        unreadable=0,
    )


def content(page: Path) -> dict[str, Any]:
    """What a page holds, as JSON."""
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert found is not None
    held: dict[str, Any] = json.loads(found[1])
    return held


def opened(address: str) -> Image.Image:
    """The picture of a `data:` address."""
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def rows(table: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(table))]


def write_table(page: Path, file: Path, labels: dict[str, str]) -> Path:
    """The table that a page saves if each image is given its label; "" is cannot tell."""
    held = content(page)
    fixed = {name: held[name] for name in ("purpose", "population", "seed", "run")}
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, held["columns"])
        writer.writeheader()
        for image in held["images"]:
            row = {"path": image["path"], "label": labels[image["path"]], "peeked": "no"}
            row["predicted"] = held["classes"][image["predicted"]]
            writer.writerow(fixed | row | {"sample": len(held["images"])})
    return file
