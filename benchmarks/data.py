"""The data pipeline in ratios from one run: cache against Pillow, both cores, the loader's share.

Run with `python -m benchmarks.data` where Office-31 is in DIAL_DATA or ../shared/data.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from torch.nn import functional as F

from dial.data.batches import Batches
from dial.data.cache import read_cached
from dial.data.datasets import open_domain
from dial.data.decode import Bytes, cores, read_images
from dial.data.domain import ImageFiles
from dial.data.pixels import Pixels, Rows
from dial.data.prepare import prepare, require_every_class
from dial.data.transforms import Augmentation, Preprocessing, augment

SIZE = Preprocessing(size=160)
BATCH = 48
_QUIET = 0.3
BUSY = "; others are at work, so the gain by cores and the loader's share mean little"


def main() -> None:
    """Measure and print, a line for each thing that must hold."""
    data = Path(os.environ.get("DIAL_DATA") or Path(__file__).resolve().parents[2] / "shared/data")
    if not (data / "office31").is_dir():
        print("Office-31 is neither in DIAL_DATA nor in ../shared/data: nothing to measure")
        return
    domains = [open_domain(f"office31:{name}", data=data) for name in ("amazon", "webcam", "dslr")]
    paths = [p for d in domains if isinstance(d.images, ImageFiles) for p in d.images.paths]
    print(f"Office-31: {len(paths)} images, {cores()} cores, {SIZE.size} px from {SIZE.resize} px")
    load = os.getloadavg()[0]
    print(f"load before: {load:.1f}" + (BUSY if load > _QUIET else ""))
    with tempfile.TemporaryDirectory() as folder:
        measure_build(paths, Path(folder))
        both = prepare(domains[:2], resize=SIZE.resize, cache_dir=folder, quiet=True)
        (source,), target = require_every_class(both[:1]), both[1]
        batches = Batches(
            source.pixels, source.labels, target.pixels, preprocessing=SIZE, batch_size="32+16"
        )
        measure_reading(source.pixels, paths)
        measure_share(batches)


def measure_build(paths: list[Path], folder: Path) -> None:
    """The cache of all three domains, against the same decoding on one core."""
    part = paths[:: len(paths) // 600]
    seconds: dict[int, list[float]] = {1: [], cores(): []}
    for _ in range(3):  # in turn, so that other work on the machine meets both
        for threads, times in seconds.items():
            start = time.perf_counter()
            for _image in read_images(part, resize=SIZE.resize, threads=threads, quiet=True):
                pass
            times.append(time.perf_counter() - start)
    one, all_cores = (min(times) for times in seconds.values())
    start = time.perf_counter()
    read_cached(
        ImageFiles(tuple(paths)), resize=SIZE.resize, cache_dir=folder / "office31", quiet=True
    )
    build = time.perf_counter() - start
    print(f"cache of Office-31 built in {build:.1f} s, {len(paths) / build:.0f} images a second")
    print(f"decoding with {cores()} threads against 1: {one / all_cores:.2f}x as fast")


def measure_reading(pixels: Pixels, paths: list[Path]) -> None:
    """Images through the cache against Pillow, as pixels and as finished batches."""
    random = np.random.default_rng(0)
    choices = Augmentation.draw(SIZE, BATCH, random=random)

    def rows() -> Rows:  # others each time, so that none comes from the processor's own cache
        return random.permutation(len(pixels))[:BATCH]

    def decoded() -> Bytes:
        return pillow([paths[row] for row in rows()])  # amazon's come first

    read = median(lambda: pixels.read(rows()))
    decode = median(decoded)
    finish = median(lambda: augment(pixels.read(rows()), choices, preprocessing=SIZE))
    finish_decoded = median(lambda: augment(decoded(), choices, preprocessing=SIZE))
    print(
        f"pixels: cache {BATCH / read:.0f}, Pillow {BATCH / decode:.0f} images a second,", end=" "
    )
    print(f"{decode / read:.1f}x")
    print(f"augmented batches: cache {BATCH / finish:.0f}, Pillow", end=" ")
    print(f"{BATCH / finish_decoded:.0f} images a second, {finish_decoded / finish:.1f}x")


def pillow(paths: list[Path]) -> Bytes:
    """Decode and resize with nothing but Pillow."""
    side = (SIZE.resize, SIZE.resize)
    images = [
        Image.open(path).convert("RGB").resize(side, Image.Resampling.BILINEAR) for path in paths
    ]
    return np.stack([np.asarray(image) for image in images])


def measure_share(batches: Batches) -> None:
    """The loader's share of a training step of EfficientNet-Lite0 on 32 + 16 images."""
    model = timm.create_model("tf_efficientnet_lite0", num_classes=31)
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    load: list[float] = []
    train: list[float] = []
    for number in range(5):
        start = time.perf_counter()
        batch = batches.batch(0, number)
        loaded = time.perf_counter()
        assert batch.target is not None  # noqa: S101
        logits = model(torch.cat([batch.source, batch.target]))
        F.cross_entropy(logits[: len(batch.labels)], batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        load.append(loaded - start)
        train.append(time.perf_counter() - loaded)
    loading, training = statistics.median(load), statistics.median(train)
    print(
        f"a step: loader {loading * 1e3:.0f} ms, EfficientNet-Lite0 {training * 1e3:.0f} ms;",
        end=" ",
    )
    print(f"the loader's share is {loading / (loading + training):.1%}")


def median(run: Callable[[], object], times: int = 9) -> float:
    """Seconds that `run` takes, the median of a few."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
