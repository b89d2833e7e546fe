"""Batches: one pass an epoch, fresh shuffles, the same whatever workers, processes and labels."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dial.data.batches import Batch, Batches, BatchSize, parse_batch_size
from dial.data.domain import Labels
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.transforms import Preprocessing
from dial.errors import DialError

PLAIN = Preprocessing(size=2, resize=2, channels=1, mean=(0.0,), std=(1 / 255,), flip=False)
RANDOM = Preprocessing(size=4, resize=8, channels=1, mean=(0.0,), std=(1 / 255,))


def numbered(count: int) -> ArrayPixels:
    """Images that show their own row's number."""
    array = np.arange(count, dtype=np.uint8).repeat(4).reshape(count, 2, 2, 1)
    return ArrayPixels(array, digests=array_digests(array))


def noise(count: int, seed: int) -> ArrayPixels:
    array = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
    return ArrayPixels(array, digests=array_digests(array))


def labels(count: int) -> Labels:
    return Labels.from_names([f"{row:03}" for row in range(count)])


def rows(images: torch.Tensor | None) -> list[int]:
    assert images is not None
    return [round(value) for value in images[:, 0, 0, 0].tolist()]


def same(one: list[Batch], other: list[Batch]) -> bool:
    pairs = [(a, b) for pair in zip(one, other, strict=True) for a, b in zip(*pair, strict=True)]
    return all(
        a is b if a is None or b is None else torch.equal(a, b)  # a target may be absent
        for a, b in pairs
    )


def random_batches(**options: object) -> Batches:
    arguments = {"preprocessing": RANDOM, "batch_size": "4+2", "seed": 3, **options}
    return Batches(noise(21, 0), labels(21), noise(5, 1), **arguments)  # type: ignore[arg-type]


def test_epoch_is_one_pass_over_the_source_and_labels_belong_to_their_images() -> None:
    batches = Batches(numbered(24), labels(24), numbered(7), preprocessing=PLAIN, batch_size="4+3")
    for _ in range(2):
        epoch = list(batches)
        assert len(epoch) == len(batches) == 6
        seen = [row for batch in epoch for row in rows(batch.source)]
        assert sorted(seen) == list(range(24))
        assert seen != sorted(seen)
        assert [label for batch in epoch for label in batch.labels.tolist()] == seen


@settings(deadline=None)  # other work on the machine must not fail it
@given(st.integers(1, 30), st.integers(1, 30), st.integers(2, 8), st.integers(2, 8))
def test_every_batch_is_full_and_every_image_used_equally_often(
    of_source: int, of_target: int, source_size: int, target_size: int
) -> None:
    batches = Batches(
        numbered(of_source),
        labels(of_source),
        numbered(of_target),
        preprocessing=PLAIN,
        batch_size=f"{source_size}+{target_size}",
    )
    epochs = [batch for _ in range(3) for batch in batches]
    for part, size in (("source", source_size), ("target", target_size)):
        drawn = [rows(getattr(batch, part)) for batch in epochs]
        assert {len(batch) for batch in drawn} == {size}
        counts = Counter(itertools.chain.from_iterable(drawn))
        count = of_source if part == "source" else of_target
        assert max(counts.values()) - min(counts.get(row, 0) for row in range(count)) <= 1


def test_smaller_domain_cycles_with_a_fresh_shuffle() -> None:
    batches = Batches(numbered(60), labels(60), numbered(6), preprocessing=PLAIN, batch_size="6+6")
    passes = [rows(batch.target) for batch in batches]
    assert all(sorted(order) == list(range(6)) for order in passes)
    assert len({tuple(order) for order in passes}) > 7


def test_source_only_gives_the_same_source_batches() -> None:
    alone = Batches(noise(21, 0), labels(21), preprocessing=RANDOM, batch_size="4+2", seed=3)
    both = random_batches()
    assert all(batch.target is None for batch in alone)
    assert same(
        [Batch(batch.source, batch.labels, None) for batch in both],
        [alone.batch(0, step) for step in range(5)],
    )


def test_places_say_which_target_image_it_is() -> None:
    pixels = numbered(9)
    batches = Batches(numbered(20), labels(20), pixels, preprocessing=PLAIN, batch_size="4+5")
    for batch in batches:
        assert batch.places is not None
        assert rows(batch.target) == pixels.order[batch.places.numpy()].tolist()


def test_everything_follows_from_the_seed() -> None:
    first = list(random_batches())
    torch.manual_seed(99)
    np.random.seed(99)
    assert same(first, list(random_batches()))
    assert not same(first, list(random_batches(seed=4)))


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(workers: int) -> None:
    assert same(list(random_batches()), list(random_batches(workers=workers)))


def test_augmentation_is_new_in_every_epoch_and_for_every_image() -> None:
    array = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
    one = ArrayPixels(array, digests=array_digests(array))
    batches = Batches(one, labels(1), preprocessing=RANDOM, batch_size=16)
    crops = [image.flatten().tolist() for _ in range(3) for b in batches for image in b.source]
    assert len({tuple(crop) for crop in crops}) > 20  # of 50 possible


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [0, 3, 5, 7])
def test_position_is_restored_in_the_middle_of_an_epoch(workers: int, done: int) -> None:
    whole = random_batches()
    expected = [batch for _ in range(3) for batch in whole]
    first = random_batches(workers=workers)
    taken = list(itertools.islice(itertools.chain.from_iterable(itertools.repeat(first, 3)), done))
    state = json.loads(json.dumps(first.state_dict()))
    second = random_batches(workers=workers)
    second.load_state_dict(state)
    while second.epoch < 3:
        taken += list(second)
    assert same(taken, expected)


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_the_same_global_batch(world_size: int) -> None:
    shares = [
        list(random_batches(batch_size="6+12", rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    joined = [
        Batch(*(torch.cat(parts) for parts in zip(*(b[:4] for b in batches), strict=True)))
        for batches in zip(*shares, strict=True)
    ]
    assert same(joined, list(random_batches(batch_size="6+12")))
    sizes = [len(share[0].source) for share in shares]
    assert sizes == [6 // world_size] * world_size


def test_state_of_other_data_is_refused() -> None:
    state = random_batches().state_dict()
    with pytest.raises(DialError, match=r"the run began with.*'seed': 3.*got .*'seed': 4"):
        random_batches(seed=4).load_state_dict(state)


def test_labels_for_every_source_image() -> None:
    with pytest.raises(DialError, match="label for each of the 21 source images, got 20"):
        Batches(noise(21, 0), labels(20), preprocessing=RANDOM)


def test_seed_below_zero() -> None:
    with pytest.raises(DialError, match="seed of 0 or more, got -1"):
        random_batches(seed=-1)


def test_more_processes_than_images() -> None:
    with pytest.raises(DialError, match="process 0 of 3, sub-batches of"):
        random_batches(world_size=3)


@pytest.mark.parametrize("batch_size", ["7+4", "4+7"])
def test_processes_that_cannot_share_evenly(batch_size: str) -> None:
    message = "2 processes share evenly, got " + batch_size.replace("+", r"\+")
    with pytest.raises(DialError, match=message + ".*--batch-size of multiples"):
        random_batches(batch_size=batch_size, world_size=2)


def test_fixed_sizes() -> None:
    assert parse_batch_size("32+16", source=10, target=1000) == BatchSize(32, 16)


def test_source_only() -> None:
    assert parse_batch_size("32+16", source=10, target=0) == BatchSize(32, 0)
    assert parse_batch_size(48, source=10, target=0) == BatchSize(48, 0)


@given(st.integers(4, 512), st.integers(1, 10**6), st.integers(1, 10**6))
def test_total_is_shared_in_proportion(total: int, source: int, target: int) -> None:
    size = parse_batch_size(total, source=source, target=target)
    assert size.source + size.target == total
    assert min(size.source, size.target) >= 2
    if min(size.source, size.target) > 2:
        assert abs(size.source / total - source / (source + target)) <= 0.5 / total + 1e-9


@pytest.mark.parametrize("text", ["", "x", "1+16", "32+1", "3", "-8", "32+16+8", "32+", "3.5"])
def test_what_is_no_batch_size(text: str) -> None:
    with pytest.raises(DialError, match=r"batch size like 32\+16.*--batch-size"):
        parse_batch_size(text, source=100, target=100)


def test_several_domains_have_equal_parts_and_places_one_after_the_other() -> None:
    sources, targets = [numbered(30), numbered(9)], [numbered(8), numbered(5)]
    all_labels = [labels(30), labels(9)]
    batches = Batches(sources, all_labels, targets, preprocessing=PLAIN, batch_size="6+2")
    assert (len(batches), batches.batch_size) == ((30 + 9) // 6, BatchSize(6, 4))
    counts = [Counter[int]() for _ in range(4)]
    for batch in itertools.islice(itertools.chain(batches, batches), 12):
        parts = [*batch.source.split(3), *batch.target.split(2)]  # type: ignore[union-attr]
        for count, part in zip(counts, parts, strict=True):
            count.update(rows(part))
        # Labels number the rows of their own source, places those of both targets.
        assert batch.labels.tolist() == rows(batch.source)
        assert batch.places is not None
        first, second = batch.places.split(2)
        orders = [targets[0].order[first.numpy()], targets[1].order[second.numpy() - 8]]
        assert [order.tolist() for order in orders] == [rows(part) for part in parts[2:]]
    assert [count.total() for count in counts] == [36, 36, 24, 24]
    # A small source is repeated as often as it takes, evenly.
    assert max(counts[1].values()) - min(counts[1].values()) <= 1


def test_the_first_domains_draw_the_same_whatever_others_there_are() -> None:
    alone = Batches(
        noise(21, 0), labels(21), noise(5, 1), preprocessing=RANDOM, batch_size="4+2", seed=3
    )
    more = Batches(
        [noise(21, 0), noise(9, 2)],
        [labels(21), labels(9)],
        [noise(5, 1), noise(6, 3)],
        preprocessing=RANDOM,
        batch_size="8+2",
        seed=3,
    )
    one, other = alone.batch(0, 3), more.batch(1, 0)  # batch 3 of both
    assert torch.equal(one.source, other.source[:4])
    assert torch.equal(one.target, other.target[:2])  # type: ignore[arg-type, index]
    assert not torch.equal(other.source[:4], other.source[4:])


def test_sources_that_get_too_few_images() -> None:
    with pytest.raises(DialError, match=r"2 images or more of each domain.*got 1\+1\+1\+2"):
        Batches(
            [noise(9, 0)] * 3, [labels(9)] * 3, noise(5, 1), preprocessing=RANDOM, batch_size="4+2"
        )


def test_each_source_has_its_own_labels() -> None:
    with pytest.raises(DialError, match=r"each of the 9\+8 source images, got 8\+9 labels"):
        Batches([noise(9, 0), noise(8, 1)], [labels(8), labels(9)], preprocessing=RANDOM)


def test_a_total_is_shared_by_all_targets() -> None:
    sizes = parse_batch_size("48", source=100, target=200, targets=2)
    assert sizes == BatchSize(16, 16)
    batches = Batches(
        noise(100, 0), labels(100), [noise(100, 1)] * 2, preprocessing=RANDOM, batch_size="48"
    )
    assert sum(batches.batch_size) == 48
    with pytest.raises(DialError, match="a batch size like"):
        parse_batch_size("5", source=100, target=200, targets=2)
