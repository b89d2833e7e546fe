"""New images against those that a finished run was made for."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from dial.data.datasets import open_domain
from dial.data.evaluation import NamedBatch, stream_images
from dial.deployment import memory
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.selection import drift
from dial.selection.drift import Comparison, Drift


def check_drift(
    run: Run,
    images: Iterable[str | os.PathLike[str]],
    *,
    data: str | os.PathLike[str] | None = None,
    quiet: bool = True,
) -> Drift:
    """Returns how far images are from those that a run was made for; no labels are needed.

    Of more than 300 images a random sample is compared.

    Args:
        run: a finished run.
        images: folders, files, image lists or known domains.
        data: the folder that holds the known data sets, or that lists are relative to.
        quiet: show no progress.

    Raises:
        DialError: fewer than two images that can be read, or a run without a memory.
    """
    classifier, remembered = run.model.classifier, memory.load(run.folder, run.model)
    bad: dict[str, str] = {}
    domains = [open_domain(item, data=data, unlabelled=True) for item in images]
    described = []
    for domain in domains:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(len(domain.images), generator=generator)[: drift.DESCRIBED]
        some = domain.images.take(rows.sort().values.tolist())
        title = f"comparing {domain.name}"
        stream = stream_images(
            some, preprocessing=run.model.preprocessing, title=title, quiet=quiet
        )
        described += [*drift.describe(run.network, _good(stream, bad), classifier=classifier)]
    if not described:
        raise DialError(
            wanted="images to compare with the target that the run was made for",
            got="none that can be read",
            fix="dial check --from RUN IMAGES, with a folder of images",
        )
    descriptions, logits = (torch.cat(parts) for parts in zip(*described, strict=True))
    of_target = remembered.descriptions, remembered.predicted
    if descriptions.shape[1] != remembered.descriptions.shape[1]:
        raise DialError(
            wanted=f"in {run.folder / memory.NAME} descriptions by the run's network",
            got=f"others, of {remembered.descriptions.shape[1]} numbers",
            fix="make the run again, in another folder",
        )
    return replace(drift.compare(of_target, (descriptions, logits)), unreadable=len(bad))


def _good(stream: Iterable[NamedBatch], bad: dict[str, str]) -> Iterator[Tensor]:
    """Yields the images that can be read, and notes the others."""
    for batch in stream:
        bad |= batch.bad
        if batch.names:
            yield batch.images


def summarize(found: Drift, run: Path) -> str:
    """Returns what the command prints."""
    lines = [
        f"{found.images} images against the target of {run}"
        + (f" ({found.unreadable} files could not be read)" if found.unreadable else ""),
        _line("statistics at the normalization layers", found.statistics),
        _line("class balance of the predictions", found.balance),
    ]
    if found.is_worth_adapting:
        lines.append(
            "These images are not what the model was made for. Adapting anew seems worth it: "
            f"dial adapt --from {run} IMAGES --out NEW (--steps 0 for statistics alone, in seconds)"
        )
    elif found.statistics.alarms:
        lines.append(
            "These images differ from the target by more than chance, but not by much. Watch it; "
            f"dial adapt --from {run} IMAGES --steps 0 --out NEW costs seconds."
        )
    elif found.balance.alarms:
        lines.append(
            "The images look the same, but other classes are predicted than before. Adapting anew "
            "is not likely to help; label some images to see whether the predictions are right."
        )
    else:
        lines.append("No drift: as many images of the target itself could differ as much.")
    return "\n".join(lines)


def _line(title: str, found: Comparison) -> str:
    verdict = "  DRIFT" if found.alarms else ""
    return (
        f"{title + ':':<40} distance {found.distance:.2f}, by chance up to {found.chance:.2f} "
        f"(p = {found.probability:.3f}){verdict}"
    )
