"""Damaged files of every kind end in a sound result or in an error of ours, and write nothing."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from dial import DialError

from .mutations import Content
from .readers import READERS, Reader

_ALL = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[*HealthCheck],
)
PROFILES = {
    "ci": settings(_ALL, max_examples=30, derandomize=True),
    "long": settings(_ALL, max_examples=1000),
}
"""`DIAL_FUZZ=long` (make fuzz) takes its time, with other examples at each start."""
PROFILE = PROFILES[os.environ.get("DIAL_FUZZ", "ci")]


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """The files below a folder, with their sizes and times."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damaged_files(reader: Reader, home: Path) -> None:
    (path,) = home.glob(reader.path)
    sound = Content(path.read_bytes())
    reader.read(home)  # or it would prove nothing
    examples = -(-PROFILE.max_examples // reader.cost)

    @settings(PROFILE, max_examples=examples)
    @given(damaged=reader.mutation(sound).map(Content))
    def check(damaged: bytes) -> None:
        path.write_bytes(damaged)
        before = state(home)
        try:
            reader.read(home)
        except DialError:
            assert state(home) == before

    try:
        check()
    finally:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sound)
