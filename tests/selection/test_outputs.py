"""The outputs that a run keeps: whose they are, in which order, and that no target label is in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dial
from dial import DialError
from dial.selection import outputs

from ..conftest import CLASSES, SETTINGS
from ..oracles import network_input


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return SETTINGS | {"cache_dir": str(tmp_path / "cache"), "epochs": 1, "holdout": 0.95}


def test_of_both_domains_by_their_predictors(
    folders: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    run = dial.adapt(*folders, out=tmp_path / "run", **settings)
    found = outputs.load(run.folder)
    assert found.held_out is not None
    assert found.unadapted is None
    assert np.bincount(found.held_out.labels).tolist() == [10, 10, 10]
    assert np.bincount(found.training.labels).tolist() == [1, 1, 1]
    assert found.target.labels is None
    assert found.target.logits.dtype == found.target.features.dtype == np.float32
    images = torch.stack([network_input(p, run.model.preprocessing) for p in _files(folders[1])])
    with torch.no_grad():
        expected = run.network(images).numpy()
    _same_rows(found.target.logits, expected)
    assert len(found.target.features) == len(expected)
    # The classifier makes the logits of the features.
    weights = run.network.get_submodule("fc")
    with torch.no_grad():
        logits = weights(torch.from_numpy(found.target.features)).numpy()
    np.testing.assert_allclose(logits, found.target.logits, atol=1e-4)


def _same_rows(ours: np.ndarray, theirs: np.ndarray) -> None:
    ours, theirs = (rows[np.argsort(rows[:, 0])] for rows in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_a_run_without_them_is_the_same(
    folders: tuple[Path, Path],
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = dial.adapt(*folders, out=tmp_path / "whole", **settings)
    monkeypatch.setattr(outputs, "save", lambda *_, **__: None)
    bare = dial.adapt(*folders, out=tmp_path / "bare", **settings)
    assert not (bare.folder / outputs.NAME).exists()
    ours, theirs = ((r.folder / "model.safetensors").read_bytes() for r in (whole, bare))
    assert ours == theirs
    with pytest.raises(DialError, match="the outputs of a finished run in"):
        outputs.load(bare.folder)


def test_a_small_source_has_nothing_held_out(finished: dial.Run) -> None:
    found = outputs.load(finished.folder)
    assert found.held_out is None
    assert len(found.training.logits) == 11 * len(CLASSES)
