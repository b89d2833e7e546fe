"""Nearest neighbors: exact among few images, nearly so in cells, without a square of memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from dial.head import nearest, neighbors

MEMORY = """
import resource
import torch
from torch.nn.functional import normalize
from dial.head import nearest
x = normalize(torch.randn(30_000, 8, generator=torch.Generator().manual_seed(0)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nearest(x, x, 5, itself=True)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000)
"""


def features(count: int, *, classes: int = 20, size: int = 32, seed: int = 0) -> Tensor:
    random = np.random.default_rng(seed)
    centers = random.normal(size=(classes, size))
    found = centers[random.integers(classes, size=count)] + 0.7 * random.normal(size=(count, size))
    return normalize(torch.from_numpy(found).float())


def all_pairs(queries: Tensor, images: Tensor, count: int, *, itself: bool) -> list[set[int]]:
    """The rows of the nearest images by NumPy, from the whole matrix, in float64."""
    similarity = queries.double().numpy() @ images.double().numpy().T
    if itself:
        np.fill_diagonal(similarity, -np.inf)
    return [set(row[:count].tolist()) for row in np.argsort(-similarity, axis=1)]


@pytest.fixture
def in_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_EXACT", 0)


@pytest.mark.parametrize("itself", [True, False])
def test_few_images_are_all_compared(itself: bool) -> None:
    images = features(1500)
    queries = images if itself else features(1100, seed=1)
    rows = nearest(queries, images, 5, itself=itself)[1]
    assert [set(row) for row in rows.tolist()] == all_pairs(queries, images, 5, itself=itself)


@pytest.mark.usefixtures("in_cells")
@pytest.mark.parametrize("itself", [True, False])
def test_cells_miss_few_neighbors(itself: bool) -> None:
    images, others = features(4100).split([3000, 1100])
    queries = images if itself else others
    values, rows = nearest(queries, images, 5, itself=itself)
    exact = all_pairs(queries, images, 5, itself=itself)
    hits = [len(exact[query] & set(row)) for query, row in enumerate(rows.tolist())]
    assert np.mean(hits) > 0.95 * 5
    assert all(len(set(row)) == 5 for row in rows.tolist())
    assert not itself or not any(query in row for query, row in enumerate(rows.tolist()))
    cosines = (queries[:, None] * images[rows]).sum(2)
    torch.testing.assert_close(values, cosines)
    assert (values.diff(dim=1) <= 0).all()


@pytest.mark.usefixtures("in_cells")
@pytest.mark.parametrize("kind", ["equal", "few", "apart"])
def test_cells_with_too_few_images(kind: str) -> None:
    """All in one cell, fewer than are asked for, or a cell for each image."""
    images = {
        "equal": features(1).expand(50, -1),
        "few": features(4),
        "apart": torch.eye(64),
    }[kind]
    values, rows = nearest(images, images, 20, itself=True)
    count = min(20, len(images) - 1)
    assert rows.shape == values.shape == (len(images), count)
    for query, row in enumerate(rows.tolist()):
        assert len({*row, query}) == count + 1


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_memory_is_no_square() -> None:
    """Of 30,000 images all similarities would take 3,600 MB."""
    result = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    assert float(result.stdout) < 200
