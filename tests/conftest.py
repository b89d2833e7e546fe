"""Seeds every test, and runs torch on one thread: small tensors gain nothing from more."""

import pytest
import torch

import dial  # noqa: F401 - before any test module imports torchvision

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
