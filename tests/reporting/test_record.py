"""The record of a run: what is read is what was written; which images it keeps."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dial import DialError, files, methods
from dial.data.domain import Labels
from dial.data.prepare import PreparedSource
from dial.reporting import record as records
from dial.selection.outputs import Moments

from .pages import make_domain, make_record, number

NO_RUNNER_UP = {"runner_up": None, "runner_up_confidence": None}  # in older records


def assert_same(one: Any, other: Any) -> None:
    """Equal, key by key, arrays bit by bit."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    else:
        assert one == other


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("layers", [0, 3])
def test_read_is_as_written(labelled: bool, before: bool, layers: int, tmp_path: Path) -> None:
    wanted = make_record(labelled=labelled, before=before, layers=layers)
    records.save(tmp_path / records.NAME, wanted)
    assert_same(vars(records.load(tmp_path)), vars(wanted))


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("layers", [0, 3])
def test_files_of_version_1_are_read(
    labelled: bool, before: bool, layers: int, tmp_path: Path
) -> None:
    wanted = make_record(labelled=labelled, before=before, layers=layers)
    rows, pictures = zip(*wanted.gallery_pictures.items(), strict=True)
    arrays = {
        "source_counts": wanted.source_counts,
        "labels": wanted.labels,
        **{f"{key}.predicted": array for key, array in wanted.predicted.items()},
        **{f"{key}.confidence": array for key, array in wanted.confidence.items()},
        "gallery.rows": np.array([int(row) for row in rows]),
        "gallery.lengths": np.array([len(picture) for picture in pictures]),
        "gallery.pictures": np.concatenate(pictures),
        **wanted.points,
    }
    plain = ("classes", "fingerprint", "adapts", "without", "layers", "sampled")
    about = {
        "version": 1,
        "repeat": {"data": None, "unlabelled": False},
        **{name: getattr(wanted, name) for name in plain},
        "shift_before": wanted.shift["before"].tolist() if before else None,
        "shift_after": wanted.shift["after"].tolist(),
        "names": list(wanted.gallery_names.values()),
        "side": wanted.gallery_side,
        **wanted.separation,
    }
    tensors = {name: torch.tensor(array) for name, array in arrays.items() if array is not None}
    files.save_tensors(tmp_path / records.NAME, tensors, about=about)
    assert_same(vars(records.load(tmp_path)), vars(wanted) | NO_RUNNER_UP)


@pytest.mark.parametrize("labelled", [True, False])
def test_files_of_version_2_are_read(labelled: bool, tmp_path: Path) -> None:
    wanted = make_record(labelled=labelled)
    path = tmp_path / records.NAME
    records.save(path, wanted)
    about, tensors = files.load_tensors(path, wanted="a record", version=None, fix="")
    kept = {name: tensor for name, tensor in tensors.items() if name not in NO_RUNNER_UP}
    assert len(kept) == len(tensors) - 2
    files.save_tensors(path, kept, about=about | {"version": 2})
    assert_same(vars(records.load(tmp_path)), vars(wanted) | NO_RUNNER_UP)


def test_missing_damaged_and_other_records_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DialError, match="got none: the run was made without a report, or could"):
        records.load(tmp_path)
    (tmp_path / records.NAME).write_bytes(b"damaged")
    with pytest.raises(DialError, match=r"evidence for a report in .*, got SafetensorError"):
        records.load(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(records, "VERSION", 0)
        records.save(tmp_path / records.NAME, make_record())
    with pytest.raises(DialError, match=r"evidence .*, of version 3, got version 0"):
        records.load(tmp_path)


def test_a_baseline_has_the_same_classes_and_the_same_images() -> None:
    run, other = make_record(), make_record(seed=1, before=False)
    compared = run.against(other, without="another run")
    for field in ("predicted", "confidence", "points", "separation"):
        mixed, own, others = (getattr(record, field) for record in (compared, run, other))
        assert mixed.keys() == own.keys()
        for key, value in mixed.items():
            before = key.startswith("before")
            assert value is (others[key.replace("before", "after")] if before else own[key])
    assert compared.shift is run.shift
    assert compared.without == "another run"
    with pytest.raises(DialError, match="a baseline with the run's 2 classes, got one with 3"):
        run.against(make_record(("a", "b", "c")), without="")
    with pytest.raises(DialError, match="a baseline on the same target images, got one on 120"):
        run.against(replace(other, fingerprint="another"), without="")


def observation(generator: np.random.Generator, images: int, *, tensors: bool) -> Any:
    convert = torch.from_numpy if tensors else np.asarray
    logits, features = (generator.normal(size=(images, n)).astype(np.float32) for n in (3, 5))
    mean, var = generator.normal(size=3), generator.gamma(2.0, size=3)
    moments = {"norm": Moments(torch.from_numpy(mean), torch.from_numpy(var))}
    return SimpleNamespace(logits=convert(logits), features=convert(features), moments=moments)


@pytest.mark.parametrize("tensors", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_records_are_made_from_outputs_row_by_row(tensors: bool, before: bool) -> None:
    generator = np.random.default_rng(0)
    outputs = SimpleNamespace(
        target=observation(generator, 20, tensors=tensors),
        unadapted=observation(generator, 20, tensors=tensors) if before else None,
        training=observation(generator, 12, tensors=tensors),
        held_out=None,
    )
    parts = make_domain(number(12), labels=Labels(("mug", "pen", "cup"), np.arange(12) % 4 % 3))
    source = PreparedSource(*vars(parts).values())
    target = make_domain(number(20))
    record = records.record(methods.create("dial", {}), outputs, sources=[source], target=target)
    logits = np.asarray(outputs.target.logits, np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    order = target.pixels.order
    np.testing.assert_array_equal(record.predicted["after"][order], probabilities.argmax(1))
    np.testing.assert_allclose(record.confidence["after"][order], probabilities.max(1), rtol=1e-5)
    ranked = np.argsort(probabilities, axis=1)
    assert record.runner_up is not None
    assert record.runner_up_confidence is not None
    np.testing.assert_array_equal(record.runner_up[order], ranked[:, 1])
    second = np.take_along_axis(probabilities, ranked[:, 1:2], axis=1)[:, 0]
    np.testing.assert_allclose(record.runner_up_confidence[order], second, rtol=1e-5)
    assert record.source_counts.tolist() == [6, 3, 3]
    assert record.sampled == (12, 20)
    assert record.layers == ("norm",)
    keys = {"before", "after"} if before else {"after"}
    assert record.shift.keys() == record.predicted.keys() == record.confidence.keys() == keys
    assert record.shift["after"].shape == (1, 2)
    assert len(record.separation) == (4 if before else 2)
    assert {len(points) for points in record.points.values()} == {12, 20}
