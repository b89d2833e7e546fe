"""Reading images from a large tar archive: one here and one there against block by block.

    python -m benchmarks.archives --data DATA [--gigabytes 2]

packs Office-31's amazon again and again into an archive in a temporary folder, forgets what the
system has in memory of it, and reads images in batches: `--images` of them in the order of a whole
shuffle, then all in that of blocks. Nothing is decoded.
"""

import argparse
import io
import os
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from dial.data.blocks import BlockReader, blocks_of
from dial.data.datasets import open_domain
from dial.data.members import ImageMembers


def main() -> None:
    """Pack, read in both orders in turn, print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="folder that holds office31")
    parser.add_argument("--folder", help="where the archive is written, on the disk to measure")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--images", type=int, default=5_000, help="to read one by one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        shard = pack(Path(folder), options.data, int(options.gigabytes * 1e9))
        images = open_domain(shard).images
        assert isinstance(images, ImageMembers)  # noqa: S101 - what an archive holds
        print(f"{len(images):,} images, {shard.stat().st_size / 1e9:.1f} GB", flush=True)
        blocks = blocks_of(images)
        orders = {
            "one by one": (
                lambda rows: [images[row].read() for row in rows.tolist()],
                options.images,
            ),
            "in blocks": (BlockReader(images, blocks).read, len(images)),
        }
        rates = {}
        for name, (read, count) in orders.items():
            random = np.random.default_rng(0)
            is_near = name == "in blocks"
            order = blocks.shuffle(random) if is_near else random.permutation(len(images))[:count]
            forget(shard)
            before, start = from_disk(), time.perf_counter()
            for part in np.array_split(order, max(1, count // 32)):
                read(part)
            seconds, read_bytes = time.perf_counter() - start, from_disk() - before
            size = int(images.places[order, 2].sum())
            rates[name] = size / seconds / 1e6
            print(
                f"{name}: {count:,} images, {rates[name]:.1f} MB of images a second, "
                f"{read_bytes / size:.1f} bytes from disk for each of theirs",
                flush=True,
            )
        print(f"in blocks {rates['in blocks'] / rates['one by one']:.1f}x as fast")


def from_disk() -> int:
    """Returns the bytes that this process has had the disk read so far (Linux)."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def pack(folder: Path, data: str, size: int) -> Path:
    """Returns an archive of so many bytes."""
    domain = open_domain("office31:amazon", data=data)
    contents = [Path(name).read_bytes() for name in domain.images.names]
    path, number, written = folder / "many.tar", 0, 0
    with tarfile.open(path, "w") as archive:
        while written < size:
            content = contents[number % len(contents)]
            member = tarfile.TarInfo(f"{number:08}.jpg")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
            number, written = number + 1, written + len(content)
    return path


def forget(path: Path) -> None:
    """Ask the system to drop what it has in memory of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
