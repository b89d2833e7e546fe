"""The script that measures warnings: its runs, and a run's row."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.alarms import COLUMNS, Planned, describe, plan, write_page

from dial.reporting import record

from .reporting.pages import make_record


def test_each_run_has_a_folder_of_its_own() -> None:
    runs = plan(Namespace(seeds=3, failing_seeds=2, image_size=96, steps=None))
    assert len(runs) == 3 * 6 + 3 * 2 + 2 * 4
    assert len({run.folder for run in runs}) == len(runs)
    assert runs[0] == Planned("A-W", "office31:amazon", "office31:webcam", 0, {"image_size": 96})
    failing = [run for run in runs if run.options.get("entropy") == 10]
    assert {run.source for run in failing} == {"digits:mnist", "digits:optdigits"}


@pytest.mark.parametrize("before", [True, False])
def test_a_row_has_the_gain_and_what_was_said(tmp_path: Path, before: bool) -> None:
    found = make_record(before=before)
    record.save(tmp_path / record.NAME, found)
    compared = {"changed": 17, "support": 0.1, "chance": 0.75} if before else None
    result = {"target_accuracy": 0.875, "comparison": compared, "warnings": ["it collapsed", "!"]}
    (tmp_path / "result.json").write_text(json.dumps(result))
    row = describe(Planned("A-W", "a", "w", 1, {}), tmp_path)
    share = "-"
    if before and found.labels is not None:
        share = f"{100 * np.mean(found.predicted['before'] == found.labels):.1f}"
    middle = ["17", "0.100", "0.750"] if before else ["-", "-", "-"]
    assert row == ["A-W", "1", "87.5", share, *middle, "it collapsed; !"]
    assert "| " + " | ".join(row) + " |" in write_page([row]).splitlines()
    assert len(row) == len(COLUMNS)
