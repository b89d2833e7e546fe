"""Archives without a cache: read block by block, each image once a pass, the same for everyone."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dial
from dial import DialError
from dial.data import blocks
from dial.data.batches import Batch, Batches
from dial.data.blocks import BlockReader
from dial.data.datasets import open_domain
from dial.data.pixels import MemberPixels
from dial.data.prepare import PreparedSource, prepare, require_every_class
from dial.data.transforms import Preprocessing

from ..conftest import CLASSES, SETTINGS, MakeImage, check_that_it_resumes
from .test_shards import as_name, pack, shards_of

IMAGES = 90
PLAIN = Preprocessing(size=8, resize=8, flip=False)


@pytest.fixture
def source(
    tmp_path: Path, make_image: MakeImage, monkeypatch: pytest.MonkeyPatch
) -> PreparedSource:
    """Three archives of 30 images, sorted by class; 6 or 7 images a block, 3 blocks a buffer."""
    monkeypatch.setattr(blocks, "BLOCK", 10_000)
    for shard in range(3):
        files: list[tuple[str, bytes]] = []
        for number in range(30):
            image = make_image(tmp_path / "a.png", seed=30 * shard + number, size=(8, 8))
            files += [(f"{number}.png", image.read_bytes()), (f"{number}.cls", b"%d" % shard)]
        pack(tmp_path / "shards" / f"{shard}.tar", files)
    domain = open_domain(tmp_path / "shards")
    (found,) = require_every_class(prepare([domain], resize=8, use_cache=False, quiet=True))
    assert isinstance(found.pixels, MemberPixels)
    totals = np.bincount(found.pixels.blocks.numbers, weights=found.pixels.blocks.sizes)  # type: ignore[union-attr]
    monkeypatch.setattr(blocks, "BUFFER", int(3.2 * totals.mean()))
    return found


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that were read from disk, one after the other."""
    found: list[int] = []
    load = BlockReader._load

    def counted(self: BlockReader, number: int) -> bytes:
        found.append(number)
        return load(self, number)

    monkeypatch.setattr(BlockReader, "_load", counted)
    return found


def batches(source: PreparedSource, **more: Any) -> Batches:
    settings = {"preprocessing": PLAIN, "batch_size": 6, "seed": 1} | more
    return Batches(source.pixels, source.labels, **settings)


def same(one: list[Batch], other: list[Batch]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        torch.equal(a.source, b.source) and torch.equal(a.labels, b.labels) for a, b in pairs
    )


def keys(images: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def test_every_pass_has_each_image_once_with_its_label(source: PreparedSource) -> None:
    loader = batches(source)
    orders = []
    label_of = {}
    for row, pixels in enumerate(source.pixels.read(np.arange(IMAGES))):
        label_of[pixels.tobytes()] = source.labels.indices[row]
    undo = torch.tensor(PLAIN.std)[:, None, None], torch.tensor(PLAIN.mean)[:, None, None]
    for _ in range(2):
        found = [*loader]
        images = torch.cat([batch.source for batch in found])
        bytes_ = ((images * undo[0] + undo[1]) * 255).round().byte().permute(0, 2, 3, 1)
        orders.append(keys(bytes_.contiguous()))
        labels = torch.cat([batch.labels for batch in found]).tolist()
        assert Counter(orders[-1]) == Counter([*label_of])
        assert labels == [label_of[key] for key in orders[-1]]
        mixed = [len(set(labels[start : start + 18])) for start in range(0, IMAGES, 18)]
        assert np.mean(mixed) > 1.5  # of three classes, though each archive has one
    assert orders[0] != orders[1]


def test_a_pass_reads_each_block_about_once(source: PreparedSource, loads: list[int]) -> None:
    [*batches(source)]
    assert source.pixels.blocks is not None
    count = int(source.pixels.blocks.numbers.max()) + 1
    assert set(loads) == set(range(count))
    assert len(loads) <= count + 3  # the images of a batch may be of two buffers
    assert count <= IMAGES / 5
    assert source.pixels.blocks.sizes.sum() > 3 * blocks.BUFFER


def test_everything_follows_from_seed_and_number(source: PreparedSource) -> None:
    expected = [*batches(source)]
    assert same([*batches(source, workers=3)], expected)
    assert not same([*batches(source, seed=2)], expected)
    late = batches(source)
    late.load_state_dict(batches(source).state_dict() | {"step": 7})
    assert same([*late], expected[7:])
    for parts in zip(*(batches(source, rank=rank, world_size=3) for rank in range(3)), strict=True):
        whole = expected.pop(0)
        assert torch.equal(torch.cat([part.source for part in parts]), whole.source)


def test_archives_that_fit_are_shuffled_as_files_are(
    source: PreparedSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_blocks = batches(source)
    state = in_blocks.state_dict()
    monkeypatch.setattr(blocks, "BUFFER", 10**9)
    whole = batches(source)
    cached = prepare([open_domain(tmp_path / "shards")], resize=8, cache_dir=tmp_path, quiet=True)
    assert same([*whole], [*batches(require_every_class(cached)[0])])
    for loader, other in ((whole, state), (in_blocks, whole.state_dict())):
        with pytest.raises(DialError, match="with or without a cache as before"):
            loader.load_state_dict(other)


def test_an_archive_that_became_shorter(source: PreparedSource, tmp_path: Path) -> None:
    for shard in range(3):
        (tmp_path / "shards" / f"{shard}.tar").write_bytes(b"")
    with pytest.raises(DialError, match="its archive has become shorter"):
        batches(source).batch(0, 0)


def test_order_of_archives_is_drawn_anew(source: PreparedSource) -> None:
    found = source.pixels.blocks
    assert found is not None
    orders = [found.shuffle(np.random.default_rng(seed)) for seed in range(5)]
    assert all(sorted(order.tolist()) == [*range(IMAGES)] for order in orders)
    starts = {frozenset(found.numbers[order[:10]].tolist()) for order in orders}
    assert len(starts) > 3
    assert all(len(group) <= 5 for group in starts)
    assert all(not np.array_equal(one, other) for one, other in pairwise(orders))


def test_a_run_in_blocks_resumes_to_the_bit(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8_000)
    monkeypatch.setattr(blocks, "BUFFER", 25_000)
    shards = tuple(
        shards_of(folder, tmp_path / folder.name, describe=as_name) for folder in folders
    )
    assert {*CLASSES} == {*(open_domain(shards[0]).labels or as_name("")).classes}  # type: ignore[union-attr]
    given = SETTINGS | {"use_cache": False, "epochs": 2, "out": tmp_path / "run"}
    run = dial.adapt(*shards, **given)
    check_that_it_resumes(run, shards, given)  # type: ignore[arg-type]
