"""How time and memory grow with images, classes, domains and DA-layers.

    python -m benchmarks.scaling                 all tables, some minutes
    python -m benchmarks.scaling --most 20000    up to so many images

Each cell runs in a process of its own, whose peak of memory is its own too. Features are made up:
classes around centers in 64 of 1,280 dimensions, and noise in all of them. Half of the images are
the source's. Seconds are those of the clock, and of all cores together, which other work on the
machine changes less.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import dial
from benchmarks.tables import row, rule
from dial.methods import agreement, fit_head, nearest
from dial.selection.neighborhood import look_around

IMAGES = (1_000, 3_000, 10_000, 30_000, 100_000)
CLASSES = (10, 31, 100, 300, 1_000)
FEATURES = 1_280
FEW_CLASSES, FEW_IMAGES = 31, 10_000


def main() -> None:
    """Print a table for each thing that grows; with `--cell`, measure one cell as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=IMAGES[-1], help="images")
    parser.add_argument("--only", choices=[*TABLES], help="one table")
    parser.add_argument("--cell", nargs=2, metavar=("NAME", "NUMBERS"), help="used by itself")
    options = parser.parse_args()
    if options.cell:
        name, numbers = options.cell
        print(json.dumps(measure(CELLS[name], json.loads(numbers))))
        return
    for title in [options.only] if options.only else TABLES:
        TABLES[title](options.most)


def measure(cell: Callable[..., Callable[[], object]], numbers: dict[str, int]) -> dict[str, float]:
    """Returns seconds, seconds of all cores, and megabytes above what the inputs take."""
    run = cell(**numbers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, of_cores = time.perf_counter(), time.process_time()
    run()
    seconds, cores = time.perf_counter() - start, time.process_time() - of_cores
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds, "of_cores": cores, "memory": peak / 1e3}


def in_process(name: str, **numbers: int) -> dict[str, float]:
    """Returns what `measure` does, from a new process."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--cell", name, json.dumps(numbers)]
    result = subprocess.run(  # noqa: S603 - itself
        command, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(result.stdout)
    return found


def table(title: str, head: str, cells: Iterable[tuple[str, str, dict[str, int]]]) -> None:
    """Print a row for each cell: what it is, seconds, memory."""
    print(f"\n{title}\n\n{row([head, 'part', 'seconds', 'of all cores', 'memory'])}\n{rule(5)}")
    for size, name, numbers in cells:
        found = in_process(name, **numbers)
        times = [f"{found['seconds']:.1f}", f"{found['of_cores']:.1f}"]
        print(row([size, name, *times, f"{found['memory']:.0f} MB"]), flush=True)


def make_features(images: int, classes: int) -> tuple[Tensor, Tensor]:
    """Returns features `(N, 1280)` and their labels, row after row without a second copy."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(64, FEATURES, generator=generator) / 8
    centers = torch.randn(classes, 64, generator=generator)
    labels = torch.randint(classes, (images,), generator=generator)
    labels[:classes] = torch.arange(classes)
    features = torch.empty(images, FEATURES)
    for start in range(0, images, 1000):
        some = labels[start : start + 1000]
        inner = centers[some] + 0.7 * torch.randn(len(some), 64, generator=generator)
        noise = 0.3 * torch.randn(len(some), FEATURES, generator=generator)
        features[start : start + 1000] = inner @ basis + noise
    return features, labels


def neighbors(images: int, classes: int) -> Callable[[], object]:
    """The five nearest of all images to each."""
    unit = normalize(make_features(images, classes)[0])
    return lambda: nearest(unit, unit, 5, itself=True)


def head(images: int, classes: int) -> Callable[[], object]:
    """The head's self-training, with its graph."""
    features, labels = make_features(images, classes)
    half = images // 2
    spaces = [(features[:half], features[half:])]
    return lambda: fit_head(spaces, labels[:half], num_classes=classes)


def score(images: int, classes: int) -> Callable[[], object]:
    """The score that a predictor is chosen by."""
    features, labels = make_features(images, classes)
    half = images // 2
    return lambda: agreement([labels[half:]], labels[:half], [(features[:half], features[half:])])


def neighborhood(images: int, classes: int) -> Callable[[], object]:
    """Neighbors across domains, by which a run is judged."""
    features, labels = make_features(images, classes)
    half = images // 2
    return lambda: look_around(features[:half], labels[:half], features[half:])


def step(layers: int, domains: int) -> Callable[[], object]:
    """Ten training steps of a network of so many DA-layers, 16 images of each domain."""
    names = [f"domain{number}" for number in range(domains)]
    blocks: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)]
    for _ in range(layers - 1):
        blocks += [nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.ReLU()]
    network: Any = dial.convert(nn.Sequential(*blocks), domains=tuple(names))
    batch = torch.randn(16 * domains, 3, 32, 32)

    def run() -> None:
        for _ in range(10):
            with dial.use_domain(network, dict.fromkeys(names, 16)):
                network(batch).square().mean().backward()

    return run


CELLS: dict[str, Callable[..., Callable[[], object]]] = {
    "neighbors": neighbors,
    "head": head,
    "score": score,
    "neighborhood": neighborhood,
    "step": step,
}


def grow_images(most: int) -> None:
    """Print the table for images."""
    counts = [count for count in IMAGES if count <= most]
    names = ("neighbors", "head", "score", "neighborhood")
    title = f"{FEW_CLASSES} classes, {FEATURES} features"
    sizes = [{"images": count, "classes": FEW_CLASSES} for count in counts]
    cells = [(f"{size['images']:,}", name, size) for size in sizes for name in names]
    table(title, "images", cells)


def grow_classes(most: int) -> None:
    """Print the table for classes."""
    images = min(FEW_IMAGES, most)
    sizes = [{"images": images, "classes": count} for count in CLASSES if 2 * count <= images]
    cells = [(f"{size['classes']:,}", "head", size) for size in sizes]
    table(f"{images:,} images, {FEATURES} features", "classes", cells)


def grow_layers(_: int) -> None:
    """Print the table for DA-layers."""
    sizes = [{"layers": layers, "domains": 2} for layers in (10, 20, 40, 80)]
    cells = [(str(size["layers"]), "step", size) for size in sizes]
    table("ten training steps, 16 images of each of 2 domains", "DA-layers", cells)


def grow_domains(_: int) -> None:
    """Print the table for domains."""
    sizes = [{"layers": 20, "domains": domains} for domains in (2, 4, 8, 16)]
    cells = [(str(size["domains"]), "step", size) for size in sizes]
    table("ten training steps, 20 DA-layers, 16 images of each domain", "domains", cells)


TABLES = {
    "images": grow_images,
    "classes": grow_classes,
    "layers": grow_layers,
    "domains": grow_domains,
}

if __name__ == "__main__":
    main()
