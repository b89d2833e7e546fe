"""Memory with very many listed images: opening, labels, fingerprint, hold-out, batches.

    python -m benchmarks.million --data DATA [--images 10000000]

writes a list in a temporary folder that names the images of Office-31's amazon again and again,
and prints the peak of memory and the seconds after each step. Nothing decodes ten million images
here: their hashes are made up, and only the images of the batches are read.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from dial.data.batches import Batches
from dial.data.datasets import open_domain
from dial.data.domain import ImageFiles, as_source
from dial.data.holdout import hold_out
from dial.data.pixels import FilePixels
from dial.data.prepare import PreparedSource
from dial.data.transforms import Preprocessing

BATCHES = 20
_start = time.perf_counter()


def main() -> None:
    """Write the list, do what a run does with it, and print a line after each step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="folder that holds office31")
    parser.add_argument("--images", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, total = Path(folder, "list.txt"), options.images
        write_list(file, Path(options.data), total)
        show(f"nothing yet; the list has {file.stat().st_size / 1e6:.0f} MB")
        domain = as_source(open_domain(file, data=options.data))
        show(f"opened: {len(domain.images):,} images, {len(domain.labels.classes)} classes")
        show(f"fingerprint {domain.images.fingerprint}")
        random = np.random.default_rng(0)
        digests = random.integers(0, 256, (total, 16), dtype=np.uint8)
        images, preprocessing = domain.images, Preprocessing(size=160)
        assert isinstance(images, ImageFiles)  # noqa: S101 - what a list names
        pixels = FilePixels(images, digests=digests, resize=preprocessing.resize, channels=3)
        whole = PreparedSource(domain.name, images, pixels, domain.labels)
        show("prepared, with hashes")
        source, held_out = hold_out(whole, 0.1, seed=0)
        show(f"held out {len(held_out.pixels) if held_out else 0:,}")
        batches = Batches(source.pixels, source.labels, preprocessing=preprocessing, batch_size=32)
        show("batches")
        for number in range(BATCHES):
            batches.batch(0, number)
        show(f"{BATCHES} batches of 32 drawn and decoded")


def write_list(file: Path, data: Path, total: int) -> None:
    """Write a list of so many lines, `path label`, which repeat the images there are."""
    domain = as_source(open_domain("office31:amazon", data=data))
    names, labels = domain.images.names, domain.labels
    lines = [
        f"{Path(name).relative_to(data)} {labels.classes[index]}\n"
        for name, index in zip(names, labels.indices, strict=True)
    ]
    with file.open("w") as out:
        for start in range(0, total, len(lines)):
            out.writelines(lines[: total - start])


def show(text: str) -> None:
    """Print what was done, the peak of memory so far, and the seconds so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{peak:8.0f} MB {time.perf_counter() - _start:6.0f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
