"""What can be gained, and lost, with a finished model and new images.

    python -m benchmarks.going_on statistics RUN TARGET --data DATA [--strength 200]
    python -m benchmarks.going_on drift RUN TARGET OTHER... --data DATA
    python -m benchmarks.going_on labels TARGET --data DATA --out LISTS

`statistics` takes the statistics of 20, 50 and 200 random images of the target, ten times each, and
scores the network on the whole target, beside the network as it is. `drift` draws 100 images a
hundred times from each domain and counts the alarms; those of the target that the run was made for
are false. Images that the run remembers are not drawn. `labels` writes lists of 1, 3 and 10 random
images of each class for `--labelled`. Labels are used for scoring and for these lists alone.
"""

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dial import files, methods
from dial.data.datasets import open_domain
from dial.data.domain import Domain, LabelledDomain, as_source, short_names
from dial.data.evaluation import stream_images
from dial.deployment import memory, model, runs
from dial.deployment.origin import open_origin
from dial.methods import ByDomain, Images
from dial.selection import drift

COUNTS, DRAWS = (20, 50, 200), 10
ALARMS, IMAGES = 100, 100
LABELS = (1, 3, 10)
_SAME = 1e-3  # distance up to which a description is that of an image that the run remembers


def batches_of(domain: Domain, run: runs.Run, title: str) -> list[Tensor]:
    """Returns all images of a domain as the run's network takes them."""
    stream = stream_images(
        domain.images, preprocessing=run.model.preprocessing, title=title, quiet=False
    )
    return [batch.images for batch in stream]


def statistics(run: runs.Run, domain: LabelledDomain, *, strength: float) -> None:
    """Print how few images change the accuracy."""
    images = torch.cat(batches_of(domain, run, f"reading {domain.name}"))
    labels = torch.from_numpy(domain.labels.onto(run.model.classes).indices)

    def score(network: torch.nn.Module) -> float:
        logits = model.predict(network, images.split(64))
        return 100 * float((logits.argmax(1) == labels).float().mean())

    before = score(run.network)
    print(f"| {domain.name} | as it is | {before:.1f} | |")
    method = methods.create("recalibrate", {"strength": strength})
    for count in (*COUNTS, len(images)):
        gains = []
        for seed in range(DRAWS if count < len(images) else 1):
            rows = np.random.default_rng(seed).permutation(len(images))[:count]
            trainee = method.prepare(copy.deepcopy(open_origin(run).backbone))
            drawn = Images(ByDomain({}), labels[:0], images[rows].split(64))
            method.finish(trainee, drawn)
            gains.append(score(method.predictor(trainee, drawn)) - before)
        shown = f"{np.mean(gains):+.1f} | {min(gains):+.1f} to {max(gains):+.1f}"
        print(f"| {domain.name} | {count} images | {shown} |", flush=True)


def alarms(run: runs.Run, domains: list[Domain]) -> None:
    """Print how many of a hundred draws raise an alarm."""
    classifier, remembered = run.model.classifier, memory.load(run.folder, run.model)
    of_target = remembered.descriptions, remembered.predicted
    for domain in domains:
        batches = batches_of(domain, run, f"comparing {domain.name}")
        parts = zip(*drift.describe(run.network, batches, classifier=classifier), strict=True)
        described, logits = (torch.cat(part) for part in parts)
        new = torch.cdist(described, remembered.descriptions).amin(1) > _SAME
        described, logits, found = described[new], logits[new], []
        for seed in range(ALARMS):
            rows = np.random.default_rng(seed).permutation(len(logits))[:IMAGES]
            found.append(drift.compare(of_target, (described[rows], logits[rows])))
        counts = [sum(each.alarms for each in found), sum(e.is_worth_adapting for e in found)]
        distance = np.mean([each.statistics.distance for each in found])
        print(f"| {domain.name} | {counts[0]} | {counts[1]} | {distance:.2f} |", flush=True)


def labelled_lists(domain: LabelledDomain, name: str) -> Iterator[tuple[str, str]]:
    """Yields names and contents of lists of some random images of each class."""
    by_class: dict[int, list[int]] = {}
    for row, label in enumerate(domain.labels.indices.tolist()):
        by_class.setdefault(label, []).append(row)
    names = domain.images.names
    for count in LABELS:
        lines = ["path,label"]
        for label, rows in by_class.items():
            order = np.random.default_rng(label).permutation(rows)
            drawn = order[: min(count, len(rows) - 1)].tolist()
            lines += [
                f'"{Path(names[row]).resolve()}",{domain.labels.classes[label]}' for row in drawn
            ]
        yield f"{name}-{count}.csv", "\n".join(lines) + "\n"


def main() -> None:
    """Run one of the three measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("statistics", "drift", "labels"))
    parser.add_argument("places", nargs="+", help="the run, if needed, and domains")
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--strength", type=float, default=methods.create("recalibrate").strength)  # type: ignore[attr-defined]
    parser.add_argument("--out", type=Path, help="folder of the lists")
    options = parser.parse_args()
    run = None if options.what == "labels" else runs.load(options.places.pop(0))
    domains = [as_source(open_domain(place, data=options.data)) for place in options.places]
    if run is None:
        for domain, name in zip(domains, short_names(domains), strict=True):
            for file, text in labelled_lists(domain, name):
                files.write_text(options.out / file, text)
    elif options.what == "statistics":
        for domain in domains:
            statistics(run, domain, strength=options.strength)
    else:
        alarms(run, [*domains])


if __name__ == "__main__":
    main()
