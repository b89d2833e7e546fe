"""Predictions on a real Ray: line by line those without it, in parts that are labelled once."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dial
from dial import DialError, Run, files
from dial.data.domain import Domain, ImageArray
from dial.deployment import parts
from dial.deployment.parts import ClusterPredictions
from dial.deployment.prediction import Predictions

from ..commands import Command
from ..conftest import MakeImage, SmallCluster

SIZE = 64


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SIZE", SIZE)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, make_image: MakeImage) -> Path:
    """A few hundred images, of which two cannot be read."""
    root = tmp_path_factory.mktemp("many")
    for number in range(400):
        make_image(root / f"{number:03}.png", seed=number)
    for bad in (3, 200):
        (root / f"{bad:03}.png").write_bytes(b"not an image")
    return root


def start(run: Run, *words: object, **more: object) -> Command:
    changes = {"dial.deployment.parts.SIZE": SIZE, **more}
    return Command("predict", run.folder, *words, changes=changes)


_write = files.write


def write_two_parts(path: Path, content: Any) -> None:
    """Write as the command does, and die of the third part."""
    if len([*path.parent.glob("part-*.parquet")]) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    _write(path, content)


def finish(process: Command) -> tuple[int | None, str]:
    printed, told = process.communicate()
    return process.returncode, printed + told


def without_progress(told: str) -> list[str]:
    """Returns the lines but those of slow machines."""
    return [line for line in told.splitlines() if not line.startswith("predicting")]


def test_the_csv_is_the_same(
    finished: Run, folders: tuple[Path, Path], many: Path, tmp_path: Path, cluster: SmallCluster
) -> None:
    plain, there = tmp_path / "plain.csv", tmp_path / "ray.csv"
    code, told = finish(start(finished, many, folders[1], "--out", plain, "--top"))
    assert code == 0, told
    words = many, folders[1], "--out", there, "--top", "--ray", cluster.address
    code, again = finish(start(finished, *words))
    assert code == 0, again
    assert there.read_bytes() == plain.read_bytes()
    assert without_progress(again) == without_progress(told.replace("plain.csv", "ray.csv"))
    assert {path.name for path in tmp_path.iterdir()} == {"plain.csv", "ray.csv"}


@pytest.mark.slow
def test_iterating_gives_the_same_in_order(
    finished: Run, many: Path, cluster: SmallCluster
) -> None:
    there, here = (dial.predict(finished, [many], ray=ray) for ray in (cluster.address, None))
    assert list(there) == list(here)
    assert there.bad == here.bad
    assert len(there.bad) == 2


@pytest.mark.slow
def test_an_array_keeps_its_names(finished: Run, cluster: SmallCluster) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    domains = [Domain("noise", ImageArray(pixels, "noise"))]
    here = Predictions(finished.model, domains, parts.find_device("cpu"))
    there = ClusterPredictions(
        finished.model, domains, here.device, address=cluster.address, device_name="cpu"
    )
    assert list(there) == list(here)


@pytest.mark.slow
def test_killed_it_repeats_no_part(
    finished: Run, many: Path, tmp_path: Path, cluster: SmallCluster
) -> None:
    from pyarrow import parquet

    out = tmp_path / "labels.parquet"
    words = many, "--out", out, "--ray", cluster.address
    code, _ = finish(start(finished, *words, **{"dial.files.write": write_two_parts}))
    assert code == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}
    assert len(done) == 2
    code, told = finish(start(finished, *words, "--json"))
    assert code == 0, told
    assert '"images": 398' in told
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert len([*out.glob("part-*.parquet")]) == 7
    rows = parquet.read_table(out).to_pylist()
    assert [(row["path"], row["label"], row["confidence"]) for row in rows] == [
        prediction[:3] for prediction in dial.predict(finished, [many])
    ]
    other = dial.predict(finished, [many / "000.png"], ray=cluster.address)
    with pytest.raises(DialError, match=r"parts of the same model, images and columns in .* got p"):
        other.write(out)


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(
    finished: Run, many: Path, tmp_path: Path, cluster: SmallCluster
) -> None:
    out, plain = tmp_path / "ray.csv", tmp_path / "plain.csv"
    process = start(finished, many, "--out", out, "--ray", cluster.address)
    killed: list[int] = []
    while process.poll() is None and not killed:
        for worker in cluster.workers("MapBatches(_label)"):
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)
    code, told = finish(process)
    assert killed
    assert code == 0, told
    dial.predict(finished, [many]).write(plain)
    assert out.read_bytes() == plain.read_bytes()
    assert len(without_progress(told)) == 4  # what could not be read, and how many could


@pytest.mark.slow
def test_wrong_use(finished: Run, many: Path, tmp_path: Path, cluster: SmallCluster) -> None:
    there = dial.predict(finished, [many], ray=cluster.address, device="cuda")
    with pytest.raises(DialError, match="wanted a machine of the Ray cluster with 1 CPUs and 1 G"):
        there.write(tmp_path / "out.csv")
    with pytest.raises(DialError, match=r"got --ray without --out; fix: add --out FILE\.csv or"):
        there.write(None)
    with pytest.raises(DialError, match=r"wanted a CSV file, got .*\.parquet; fix: name a \.csv"):
        dial.predict(finished, [many]).write(tmp_path / "out.parquet")
    bad = dial.predict(finished, [many / "003.png"], ray=cluster.address)
    with pytest.raises(DialError, match="images that can be read, got 1 bad: 1 not an image"):
        bad.write(tmp_path / "bad.csv")
    assert not (tmp_path / "bad.csv.parts").exists()
