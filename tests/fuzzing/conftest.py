"""One sound file of every kind, made once."""

from pathlib import Path

import pytest

from .sound import make_home


@pytest.fixture(scope="session")
def home(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sound file of every kind that DIAL reads."""
    return make_home(tmp_path_factory.mktemp("home"), folders)
