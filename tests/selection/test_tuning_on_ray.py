"""A search on a real Ray: the same choice, and a line for each trial."""

import json
from pathlib import Path
from typing import Any

import pytest

import dial

from ..conftest import SmallCluster
from .test_tuning import GRID, _small, drawings, settings

__all__ = ["_small", "drawings", "settings"]  # fixtures


@pytest.mark.slow
def test_the_choice_is_the_same(
    drawings: tuple[Path, Path],
    settings: dict[str, Any],
    tmp_path: Path,
    cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = settings | {"steps": 6}  # no trial is stopped early
    here = dial.adapt(*drawings, **options)
    options |= {"out": tmp_path / "ray", "quiet": False, "ray": cluster.address}
    there = dial.adapt(*drawings, **options)
    results = []
    for run in (here, there):
        result = json.loads((run.folder / "result.json").read_text())
        for trial in result["trials"]:
            trial.pop("seconds")
        results.append({key: result[key] for key in ("chosen", "trials", "target_accuracy")})
    assert results[0] == results[1]
    models = [(run.folder / "model.safetensors").read_bytes() for run in (here, there)]
    assert models[0] == models[1]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "3 trials on Ray, up to 2 at once"
    lines = sorted(line for line in told if line.startswith("trial "))
    assert [line[:20] for line in lines] == [f"trial {n} of 3: entropy"[:20] for n in (1, 2, 3)]
    assert len(lines) == len(GRID)
    config = json.loads((there.folder / "trials" / "entropy-0.1" / "config.json").read_text())
    assert config["execution"]["ray"] is None
