"""Training batches of source and target: balanced, and each a pure function of its number."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from dial.data.domain import Labels
from dial.data.pixels import Pixels, Rows
from dial.data.transforms import Augmentation, Preprocessing, augment
from dial.errors import DialError

_SHUFFLE, _AUGMENT = 0, 1
_LABELLED = 1000  # of the seed sequence: the number of the stream of labelled target images
_IN_BLOCKS = "in_blocks"  # of the state: which domains are read block by block
_MIN_PER_DOMAIN = 2  # one image has no variance


class BatchSize(NamedTuple):
    """The numbers of source and target images in the global batch, over all processes."""

    source: int
    target: int


def parse_batch_size(text: str | int, *, source: int, target: int, targets: int = 1) -> BatchSize:
    """Parse `32+16`, or one total that is shared in proportion to the domains' sizes.

    Returns the images of all sources, and of each of so many `targets`. Every domain gets at least
    two images, so that a batch has statistics. `source` and `target` are the sizes of both sides;
    without a target (0) the source gets its own number, or the total.

    >>> parse_batch_size("32+16", source=2817, target=795)
    BatchSize(source=32, target=16)
    >>> parse_batch_size("256", source=2817, target=795)
    BatchSize(source=200, target=56)
    """
    try:
        numbers = [int(part) for part in str(text).split("+")]
    except ValueError:
        numbers = []
    match numbers:
        case [total] if not target and total >= _MIN_PER_DOMAIN:
            return BatchSize(total, 0)
        case [total] if target and total >= (1 + targets) * _MIN_PER_DOMAIN:
            share = round(total * source / (source + target))
            share = min(max(share, _MIN_PER_DOMAIN), total - targets * _MIN_PER_DOMAIN)
            return BatchSize(share, (total - share) // targets)
        case [first, second] if min(first, second) >= _MIN_PER_DOMAIN:
            return BatchSize(first, second if target else 0)
    raise DialError(
        wanted="a batch size like 32+16 (source + target) or 48 (shared in proportion), "
        f"with {_MIN_PER_DOMAIN} images or more of each domain",
        got=repr(text),
        fix="use --batch-size 32+16",
    )


class Batch(NamedTuple):
    """Images `(n, channels, size, size)` of each side, and labels `(n,)` of the source only.

    Several sources, or several targets, have equal parts one after the other.
    """

    source: torch.Tensor
    labels: torch.Tensor
    target: torch.Tensor | None
    places: torch.Tensor | None = None
    """`(m,)`, the place of each target image in the order of the target's content. The places of
    a second target follow those of the first."""
    labelled: torch.Tensor | None = None
    """Target images whose labels were given for training, if there are any."""
    known: torch.Tensor | None = None
    """Their labels."""


@dataclass
class _Stream:
    """An endless sequence of a domain's images, with a fresh shuffle for every pass.

    It is cut into sub-batches of `count` images, which the processes share evenly.
    """

    pixels: Pixels
    preprocessing: Preprocessing
    seed: tuple[int, int]
    count: int
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)  # a sub-batch rarely spans more

    def images(self, number: int) -> tuple[torch.Tensor, Rows]:
        """Returns this process's part of sub-batch `number`, augmented, and its places."""
        share = self.count // self.world_size
        part = slice(self.rank * share, (self.rank + 1) * share)
        # Drawn for the whole sub-batch, so that the number of processes changes nothing.
        random = np.random.default_rng((*self.seed, _AUGMENT, number))
        choices = Augmentation.draw(self.preprocessing, self.count, random=random).take(part)
        places = self._places(number * self.count)[part]
        pixels = self.pixels.stream(self.pixels.order[places])
        return augment(pixels, choices, preprocessing=self.preprocessing), places

    def _places(self, start: int) -> Rows:
        """Returns the places in the order of content, from position `start` of the stream."""
        length = len(self.pixels)
        passes = range(start // length, (start + self.count - 1) // length + 1)
        places = np.concatenate([self._shuffled(number) for number in passes])
        offset = start - passes.start * length
        return places[offset : offset + self.count]

    def _shuffle(self, number: int) -> Rows:
        random = np.random.default_rng((*self.seed, _SHUFFLE, number))
        blocks = self.pixels.blocks
        if blocks is None or not blocks.are_many:
            return random.permutation(len(self.pixels))
        return blocks.take(self.pixels.order).shuffle(random)


class Batches:
    """Iterating yields the rest of the current epoch, one pass over the source.

    An epoch has `len(source) // batch` full batches. The few images that do not fill another one
    open the next epoch, so all batches have the same size and all images are used equally often.
    A domain smaller than its sub-batch is repeated within it.

    Several sources share the source's part of a batch evenly, and each of several targets has a
    sub-batch of the target's size; an epoch has as many images as all sources together. Without a
    source it is a pass over the first target. Labelled target images, if there are any, come in
    sub-batches of a third of the target's size.

    Batch `k` depends on the seed and `k` alone. So `workers`, threads that prepare batches ahead,
    change only the time, each of `world_size` processes gets its part of the same global batch,
    and the position is two numbers. There is no argument for a target's labels.
    """

    def __init__(
        self,
        source: Pixels | Sequence[Pixels],
        labels: Labels | Sequence[Labels],
        target: Pixels | Sequence[Pixels] | None = None,
        *,
        labelled: tuple[Pixels, Rows] | None = None,
        preprocessing: Preprocessing,
        batch_size: str | int = "32+16",
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        sources = [source] if isinstance(source, Pixels) else [*source]
        targets = [target] if isinstance(target, Pixels) else [*(target or ())]
        all_labels = [labels] if isinstance(labels, Labels) else [*labels]
        images = {"source": sum(map(len, sources)), "target": sum(map(len, targets))}
        sizes = parse_batch_size(batch_size, **images, targets=max(1, len(targets)))
        each = sizes.source // len(sources) if sources else 0
        counts = [each] * len(sources) + [sizes.target] * len(targets)
        _check_labels(sources, all_labels)
        self.batch_size = BatchSize(sum(counts[: len(sources)]), sum(counts[len(sources) :]))
        extra = [] if labelled is None else [_share_of_labelled(sizes.target, world_size)]
        _check([*counts, *extra], seed=seed, rank=rank, world_size=world_size)
        self.workers, self.epoch, self.step = workers, 0, 0
        domains, none = [*sources, *targets], [] if targets else [0]
        lengths = [len(pixels) for pixels in domains] + none
        self._identity = {"seed": seed, "batch_size": counts + none, "images": lengths}
        if labelled is not None:
            self._identity |= {"labelled": len(labelled[0])}
        in_blocks = [pixels.blocks is not None and pixels.blocks.are_many for pixels in domains]
        if any(in_blocks):
            self._identity |= {_IN_BLOCKS: in_blocks}
        passed = (images["source"], self.batch_size.source) if sources else (lengths[0], counts[0])
        self._per_epoch = max(1, passed[0] // passed[1])
        self._labels = [
            torch.from_numpy(of_source.indices[pixels.order])
            for pixels, of_source in zip(sources, all_labels, strict=True)
        ]
        # The first source and the first target draw the same, however many others there are.
        numbers = [0, *range(10, 9 + len(sources))][: len(sources)]
        numbers += [1, *range(100, 99 + len(targets))]
        self._streams = [
            _Stream(pixels, preprocessing, (seed, number), count, rank, world_size)
            for pixels, number, count in zip(domains, numbers, counts, strict=False)
        ]
        self._starts = np.cumsum([0, *map(len, targets)])[:-1]
        self._labelled: _Stream | None = None
        if labelled is not None:
            pixels, known = labelled
            settings = preprocessing, (seed, _LABELLED), extra[0], rank, world_size
            self._labelled, self._known = _Stream(pixels, *settings), known[pixels.order]

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._ahead(range(self.step, len(self))):
            self.step += 1  # before its use, so that a checkpoint after its step does not repeat it
            yield batch
        self.epoch, self.step = self.epoch + 1, 0

    def batch(self, epoch: int, step: int) -> Batch:
        """Returns this process's part of one batch."""
        number = epoch * len(self) + step
        parts = [stream.images(number) for stream in self._streams]
        sources, targets = parts[: len(self._labels)], parts[len(self._labels) :]
        pairs = zip(self._labels, sources, strict=True)
        labels = [of_source[torch.from_numpy(places)] for of_source, (_, places) in pairs]
        source = _join([images for images, _ in sources]) if sources else targets[0][0][:0]
        classes = _join(labels) if labels else torch.zeros(0, dtype=torch.int64)
        if not targets:
            return Batch(source, classes, None)
        shifted = zip(self._starts, targets, strict=True)
        places = [torch.from_numpy(places + start) for start, (_, places) in shifted]
        batch = Batch(source, classes, _join([x for x, _ in targets]), _join(places))
        if self._labelled is None:
            return batch
        labelled, rows = self._labelled.images(number)
        return batch._replace(labelled=labelled, known=torch.from_numpy(self._known[rows]))

    def _ahead(self, steps: range) -> Iterator[Batch]:
        if not self.workers:
            yield from (self.batch(self.epoch, step) for step in steps)
            return
        pending: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(self.workers) as pool:
            for step in steps:
                pending.append(pool.submit(self.batch, self.epoch, step))
                if len(pending) > self.workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, and what the batches depend on."""
        return {"epoch": self.epoch, "step": self.step, **self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of `state`, with the batches that follow there."""
        names = {*self._identity, *({_IN_BLOCKS} & state.keys())}
        expected = {name: state.get(name) for name in sorted(names)}
        if expected != self._identity:
            raise DialError(
                wanted=f"the data and the batches that the run began with ({expected})",
                got=str(self._identity),
                fix="resume with the same images, --batch-size and --seed, with or without a cache "
                "as before, or start a new run",
            )
        self.epoch, self.step = state["epoch"], state["step"]


def _share_of_labelled(target: int, world_size: int) -> int:
    """Returns how many labelled images a batch has: a third of the target's, the same for all."""
    share = max(_MIN_PER_DOMAIN, target // 3)
    return max(1, share // world_size) * world_size


def _join(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


def _check_labels(sources: Sequence[Pixels], labels: Sequence[Labels]) -> None:
    images, counts = [len(pixels) for pixels in sources], [len(part.indices) for part in labels]
    if images != counts:
        raise DialError(
            wanted=f"a label for each of the {'+'.join(map(str, images))} source images",
            got=f"{'+'.join(map(str, counts))} labels",
            fix="pass pixels and labels of one prepared domain",
        )


def _check(counts: Sequence[int], *, seed: int, rank: int, world_size: int) -> None:
    if seed < 0:
        raise DialError(wanted="a seed of 0 or more", got=str(seed), fix="use --seed 0, 1, 2, ...")
    if min(counts) < _MIN_PER_DOMAIN:
        raise DialError(
            wanted=f"{_MIN_PER_DOMAIN} images or more of each domain in a batch",
            got="+".join(map(str, counts)),
            fix="use a larger --batch-size: all sources share its first number",
        )
    if not 0 <= rank < world_size <= min(counts):
        raise DialError(
            wanted="an image of each domain for every process",
            got=f"process {rank} of {world_size}, sub-batches of {'+'.join(map(str, counts))}",
            fix="use larger batches or fewer processes",
        )
    if any(count % world_size for count in counts):
        raise DialError(
            wanted=f"sub-batches that {world_size} processes share evenly",
            got="+".join(map(str, counts)),
            fix="choose a --batch-size of multiples of the number of processes",
        )
