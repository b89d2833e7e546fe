"""Predictions on a Ray cluster: Ray Data streams parts of the images through the network.

The parts come back to this process, which writes each to a file of its own: `--out` need not be
shared, and a command that is started again labels only what has no file yet.
"""

import csv
import hashlib
import io
import json
import logging
import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypedDict

import torch

from dial import files
from dial.console import track
from dial.data.domain import Domain, Images, first_files
from dial.deployment.model import Model, state
from dial.deployment.prediction import (
    BATCH,
    Prediction,
    Predictions,
    columns,
    csv_row,
    find_device,
    none_readable,
    row,
)
from dial.deployment.pretrained import digest_tensors
from dial.deployment.runtime import Runtime, runtime_for
from dial.errors import DialError, missing_extra
from dial.files.records import read_json
from dial.training.cluster import Cluster, connected, lost, pickled, prepare
from dial.training.grid import held

SIZE = 16 * BATCH
"""Images of a part: so many whole batches."""
_ABOUT = "_parts.json"  # readers of Parquet folders leave out what begins with "_"


Network = tuple[Model, bytes | None]
"""A finished network, and its export for ONNX Runtime if that is faster."""


class About(TypedDict):
    """The record of a part: its images, and its files that could not be read."""

    images: int
    unreadable: dict[str, str]


class Part(NamedTuple):
    """Some of the images, in the order of the predictions."""

    number: int
    images: Images
    names: list[str]


class Labelled(NamedTuple):
    """The predictions of a part, and its files that could not be read."""

    number: int
    predictions: list[Prediction]
    bad: dict[str, str]


@dataclass
class ClusterPredictions(Predictions):
    """Predictions that the workers of a Ray cluster compute, in the order of the images."""

    address: str = "auto"
    device_name: str = "auto"

    def __iter__(self) -> Iterator[Prediction]:
        for part in self.label(self.parts(), ordered=True):
            self.bad |= part.bad
            yield from part.predictions

    def write(self, file: str | os.PathLike[str] | None, *, top: bool = False) -> int:
        """Write a CSV file, or a folder of Parquet files, part by part.

        The parts of `FILE.csv` are in the folder `FILE.csv.parts`, and are joined and removed in
        the end; those of `FILE.parquet` stay there. A part that is there already, of the same model
        and images, is not labelled again.

        Returns:
            The number of images.

        Raises:
            DialError: no file is given, it cannot be written, there are parts of other images or
                another model, or no image could be read.
        """
        if file is None:
            raise DialError(
                wanted="a file for the predictions, whose parts can be resumed",
                got="--ray without --out",
                fix="add --out FILE.csv or --out FILE.parquet",
            )
        out, parts = Path(file), self.parts()
        joins = out.suffix != ".parquet"
        folder = out.with_name(f"{out.name}.parts") if joins else out
        content = partial(_write_csv if joins else _write_parquet, columns(self.model, top=top))
        suffix = ".csv" if joins else ".parquet"
        with _alone(folder):
            _begin(folder, self.model, parts, top=top)
            paths = [folder / f"part-{part.number:05}{suffix}" for part in parts]
            missing = [part for part in parts if not paths[part.number].exists()]
            for part in self.label(missing, ordered=False):
                path = paths[part.number]
                about = {"images": len(part.predictions), "unreadable": part.bad}
                files.write_json(_record(path), about)
                files.write(path, partial(content, part.predictions, top=top))
            records = [_count(part, _record(paths[part.number])) for part in parts]
            for each in records:
                self.bad |= each["unreadable"]
            count: int = sum(each["images"] for each in records)
            if joins and count:
                files.write(out, partial(_join, paths))
        if joins or not count:
            shutil.rmtree(folder)
        if not count:
            raise none_readable(self.bad)
        return count

    def parts(self) -> list[Part]:
        """Returns all parts; no part has images of two domains, so batches are those of one."""
        parts: list[Part] = []
        for domain in self.domains:
            images = domain.images.distinct()
            names = images.names
            for start in range(0, len(names), SIZE):
                rows = range(start, min(start + SIZE, len(names)))
                parts.append(Part(len(parts), images.take(rows), [*names[start : rows.stop]]))
        return parts

    def label(self, parts: Sequence[Part], *, ordered: bool) -> Iterator[Labelled]:
        """Yields the parts as they are labelled, or `ordered`, with a bar of progress."""
        total = sum(len(part.names) for part in parts)
        if not parts:
            return
        with connected(self.address, device=self.device_name) as cluster:
            if cluster is None:
                return
            cluster.require(first_files(self.domains))
            content = self.export() if cluster.needs.num_gpus == 0 else None
            network = self.model, content
            stream = _stream(cluster, network, self.device_name, parts, ordered=ordered)
            yield from track(
                stream,
                total=total,
                title="predicting on Ray",
                quiet=self.quiet,
                size=lambda part: len(part.predictions) + len(part.bad),
            )


def _stream(
    cluster: Cluster, network: Network, device: str, parts: Sequence[Part], *, ordered: bool
) -> Iterator[Labelled]:
    try:
        from ray import data
    except ImportError as error:
        raise missing_extra(error, "ray") from error
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised
    context = data.DataContext.get_current()
    former = context.enable_progress_bars, context.execution_options.preserve_order
    context.enable_progress_bars, context.execution_options.preserve_order = False, ordered
    dumps = cluster.ray.cloudpickle.dumps
    stored = cluster.ray.put(dumps(network))  # once for all workers; alive as long as this runs
    worker = device, os.getcwd(), cluster.needs.num_cpus
    try:
        rows = data.from_items(
            [{"part": dumps(part)} for part in parts], override_num_blocks=len(parts)
        ).map_batches(_label, fn_args=(stored, *worker), batch_size=1, **cluster.needs._asdict())
        for each in rows.iter_rows():
            result = pickle.loads(each["labelled"])  # noqa: S301 - of our own worker
            if isinstance(result, Exception):
                raise result
            yield result
    except cluster.ray.exceptions.RayError as error:
        raise lost(error) from error
    finally:
        context.enable_progress_bars, context.execution_options.preserve_order = former


def _label(
    batch: dict[str, Any], network: Any, device: str, folder: str, threads: int
) -> dict[str, list[bytes]]:
    """Label a part in a task of Ray Data. Gives a `Labelled`, or the error that it raised."""
    prepare(folder, threads)
    part: Part = pickle.loads(batch["part"][0])  # noqa: S301 - our own
    try:
        place = find_device(device)
        model, runtime = _load(network, place, threads)
        domains = [Domain("part", part.images)]
        predictions = Predictions(model, domains, place, runtime=runtime)
        own = dict(zip(part.images.names, part.names, strict=True))  # an array's begin at 0
        rows = [image._replace(path=own[image.path]) for image in predictions]
        bad = {own[name]: reason for name, reason in predictions.bad.items()}
        result: Labelled | Exception = Labelled(part.number, rows, bad)
    except Exception as error:  # noqa: BLE001 - the driver raises it
        result = error
    return {"labelled": [pickled(result)]}


@lru_cache(maxsize=1)
def _load(network: Any, device: torch.device, threads: int) -> tuple[Model, Runtime]:
    """Returns the network and what runs it, which a worker keeps for its next part."""
    import ray

    model, content = pickle.loads(ray.get(network))  # noqa: S301 - our own
    return model, runtime_for(model, device, content, workers=threads)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse to write to a folder that another process writes to."""
    with held(folder / "_lock", wait=False, required=False) as ours:
        if not ours:
            raise files.taken(folder)
        yield


def _begin(folder: Path, model: Model, parts: Sequence[Part], *, top: bool) -> None:
    """Write what the parts are of, or check that the ones there are of the same."""
    names = hashlib.blake2b(digest_size=16)
    for part in parts:
        names.update("\n".join([str(len(part.names)), *part.names, ""]).encode())
    about = {
        "model": digest_tensors(state(model.network), about=json.dumps(model.describe())),
        "images": names.hexdigest(),
        "top": top,
    }
    path = folder / _ABOUT
    if not path.exists():
        files.write_json(path, about)
    elif _read(path, dict[str, Any]) != about:
        raise DialError(
            wanted=f"parts of the same model, images and columns in {folder}",
            got="parts of others",
            fix="remove that folder, or name another --out",
        )


def _read(path: Path, kind: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_json(path, kind)
    except (OSError, ValueError) as error:
        raise DialError(
            wanted=f"what earlier parts of these predictions are of, in {path}",
            got=f"{type(error).__name__}: {error}",
            fix="remove the folder, or name another --out",
        ) from error
    return found


def _count(part: Part, path: Path) -> dict[str, Any]:
    """Returns the record of a part, which has to account for all its images."""
    record = _read(path, About)
    labelled, unreadable = record["images"], len(record["unreadable"])
    if labelled < 0 or labelled + unreadable != len(part.names):
        raise DialError(
            wanted=f"the record of {len(part.names)} images in {path}",
            got=f"one of {labelled} labelled and {unreadable} unreadable ones",
            fix="remove the folder, or name another --out",
        )
    return record


def _record(path: Path) -> Path:
    """Returns the file that counts a part's images and lists those that could not be read."""
    return path.with_name(f"_{path.stem}.json")


def _write_csv(names: list[str], images: list[Prediction], out: BinaryIO, *, top: bool) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(csv_row(image, top=top) for image in images)
    out.write(text.getvalue().encode())


def _write_parquet(names: list[str], images: list[Prediction], out: BinaryIO, *, top: bool) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = [pa.float64() if name.startswith("confidence") else pa.string() for name in names]
    rows = [dict(zip(names, row(image, top=top), strict=True)) for image in images]
    schema = pa.schema([*zip(names, kinds, strict=True)])
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), out)


def _join(paths: Sequence[Path], out: BinaryIO) -> None:
    """Write the rows of all parts, below one header."""
    for number, path in enumerate(paths):
        with path.open("rb") as part:
            header = part.readline()
            if number == 0:
                out.write(header)
            shutil.copyfileobj(part, out)
