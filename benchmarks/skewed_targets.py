"""Targets that lack classes or have a long tail, as image lists for `dial adapt`.

    python -m benchmarks.skewed_targets office31:webcam --data DATA --out LISTS
    dial adapt office31:amazon LISTS/webcam-third.txt --data / --out RUN

writes `NAME-third.txt`, with the first third of the classes, and `NAME-tail.txt`, with ten times as
many images of one class as of another: the targets of `benchmarks.heads`. Lines are `path label`
with absolute paths; the labels are for scoring alone.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.heads import long_tail, third_of_classes
from dial import files
from dial.data.datasets import open_domain
from dial.data.domain import ImageFiles, as_source, short_names


def main() -> None:
    """Write the lists of all domains that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("domains", nargs="+", help="folders, or known domains")
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--out", type=Path, required=True, help="folder of the lists")
    options = parser.parse_args()
    for place in options.domains:
        domain = as_source(open_domain(place, data=options.data))
        assert isinstance(domain.images, ImageFiles)  # noqa: S101 - only files can be listed
        (name,) = short_names([domain])
        labels = torch.from_numpy(domain.labels.indices)
        for kind, rows in (("third", third_of_classes(labels)), ("tail", long_tail(labels))):
            lines = [
                f"{domain.images.paths[row].resolve()}\t{domain.labels.classes[labels[row]]}"
                for row in sorted(rows.tolist())
            ]
            path = options.out / f"{name}-{kind}.txt"
            files.write_text(path, "\n".join(lines) + "\n")
            print(path, len(lines))


if __name__ == "__main__":
    main()
