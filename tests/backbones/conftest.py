"""Seeds every test, and finds the data and weights that only some machines have."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import dial  # noqa: F401 - before torchvision, which it lets be imported


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small, threads would only wait for each other
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def shared() -> Path:
    """The folder with Office-31 and public weights, beside the repository or in DIAL_SHARED."""
    beside = Path(__file__).parents[3] / "shared"
    folder = Path(os.environ.get("DIAL_SHARED", beside))
    if not folder.is_dir():
        pytest.skip("no folder of shared data beside the repository, and no DIAL_SHARED")
    return folder
