"""Evidence on disk: what is read is what was written, and what is wrong is told."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dial import DialError
from dial.reporting import evidence
from dial.reporting.evidence import Cloud, Evidence, Gallery, View

from .pages import make_evidence


def assert_same(one: object, other: object) -> None:
    """Equal, field by field, arrays bit by bit."""
    assert type(one) is type(other)
    if isinstance(one, (Evidence, View, Cloud, Gallery)):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    else:
        assert one == other


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("layers", [0, 3])
def test_read_is_as_written(labelled: bool, before: bool, layers: int, tmp_path: Path) -> None:
    wanted = make_evidence(labelled=labelled, before=before, layers=layers)
    evidence.save(tmp_path / evidence.NAME, wanted)
    assert_same(evidence.load(tmp_path), wanted)


def test_missing_damaged_and_other_evidence_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DialError, match="got none: the run was told to make no report, could not"):
        evidence.load(tmp_path)
    (tmp_path / evidence.NAME).write_bytes(b"damaged")
    with pytest.raises(DialError, match=r"evidence for a report in .*, got SafetensorError"):
        evidence.load(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "VERSION", 0)
        evidence.save(tmp_path / evidence.NAME, make_evidence())
    with pytest.raises(DialError, match=r"evidence .*, of version 1, got version 0"):
        evidence.load(tmp_path)


def test_a_baseline_has_the_same_classes_and_the_same_images() -> None:
    own, other = make_evidence(), make_evidence(seed=1, before=False)
    found = own.against(other, without="another run")
    assert found.before is other.after
    assert found.without == "another run"
    with pytest.raises(DialError, match="a baseline with the run's 2 classes, got one with 3"):
        own.against(make_evidence(("a", "b", "c")), without="")
    object.__setattr__(other, "fingerprint", "another")
    with pytest.raises(DialError, match="a baseline on the same target images, got one on 120"):
        own.against(other, without="")
