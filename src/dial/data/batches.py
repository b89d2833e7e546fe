"""Training batches of source and target: balanced, endless, and a pure function of their number."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from dial.data.batch_size import parse_batch_size
from dial.data.domain import Labels
from dial.data.pixels import Pixels, Rows
from dial.data.transforms import Augmentation, Preprocessing, augment
from dial.errors import DialError

_SOURCE, _TARGET = 0, 1
_SHUFFLE, _AUGMENT = 0, 1


class Batch(NamedTuple):
    """Images (n, channels, size, size) of each domain; labels (n,) exist for the source only."""

    source: torch.Tensor
    labels: torch.Tensor
    target: torch.Tensor | None


class _Stream:
    """A domain's images without end: a fresh shuffle for every pass, no image left out."""

    def __init__(self, pixels: Pixels, *, domain: int, seed: int) -> None:
        self.pixels = pixels
        self._domain, self._seed = domain, seed
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)  # as many as a sub-batch mostly spans

    def rows(self, start: int, count: int) -> Rows:
        """The rows of `count` images, from place `start` of the stream on."""
        length = len(self.pixels)
        passes = range(start // length, (start + count - 1) // length + 1)
        rows = np.concatenate([self._shuffled(number) for number in passes])
        offset = start - passes.start * length
        return rows[offset : offset + count]

    def _shuffle(self, number: int) -> Rows:
        random = np.random.default_rng((self._seed, self._domain, _SHUFFLE, number))
        return self.pixels.order[random.permutation(len(self.pixels))]

    def images(
        self, number: int, *, count: int, part: slice, preprocessing: Preprocessing
    ) -> tuple[torch.Tensor, Rows]:
        """This process's part of sub-batch `number`, augmented, and the rows it came from."""
        # Drawn for the whole sub-batch, so that it is the same however many share it.
        random = np.random.default_rng((self._seed, self._domain, _AUGMENT, number))
        choices = Augmentation.draw(preprocessing, count, random=random).take(part)
        rows = self.rows(number * count, count)[part]
        return augment(self.pixels.read(rows), choices, preprocessing=preprocessing), rows


class Batches:
    """Iterating gives the rest of the current epoch, one pass over the source.

    An epoch has `len(source) // batch` full batches; the few images that do not fill another one
    open the next epoch, so every batch has the same statistics and every image is used equally
    often. A domain smaller than its sub-batch is gone through more than once in it.

    Batch `k` follows from the seed and `k` alone. So `workers`, threads that prepare batches
    ahead, change nothing but the time; of `world_size` processes each gets its part of the same
    global batch; and the position is two numbers. There is no argument for a target's labels.
    """

    def __init__(
        self,
        source: Pixels,
        labels: Labels,
        target: Pixels | None = None,
        *,
        preprocessing: Preprocessing,
        batch_size: str | int = "32+16",
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        self._counts = len(source), len(target) if target is not None else 0
        self.batch_size = parse_batch_size(
            batch_size, source=self._counts[0], target=self._counts[1]
        )
        self.preprocessing, self.seed, self.workers = preprocessing, seed, workers
        self.epoch = self.step = 0
        self._rank, self._world_size = rank, world_size
        self._check(len(labels.indices))
        self._source = _Stream(source, domain=_SOURCE, seed=seed)
        self._target = _Stream(target, domain=_TARGET, seed=seed) if target is not None else None
        self._labels = torch.from_numpy(labels.indices)

    def __len__(self) -> int:
        return max(1, self._counts[0] // self.batch_size.source)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._ahead(range(self.step, len(self))):
            self.step += 1  # counted before it is used: saved after its step, it is not repeated
            yield batch
        self.epoch, self.step = self.epoch + 1, 0

    def batch(self, epoch: int, step: int) -> Batch:
        """This process's part of one batch."""
        number = epoch * len(self) + step
        sizes = self.batch_size
        source, rows = self._source.images(
            number,
            count=sizes.source,
            part=self._part(sizes.source),
            preprocessing=self.preprocessing,
        )
        target = None
        if self._target:
            target, _ = self._target.images(
                number,
                count=sizes.target,
                part=self._part(sizes.target),
                preprocessing=self.preprocessing,
            )
        return Batch(source, self._labels[torch.from_numpy(rows)], target)

    def _part(self, count: int) -> slice:
        """This process's share of `count` images; shares differ by one at most."""
        start, stop = (count * rank // self._world_size for rank in (self._rank, self._rank + 1))
        return slice(start, stop)

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
        """Where we are, and what the batches depend on."""
        return {"epoch": self.epoch, "step": self.step, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken, with the batches that would have followed there."""
        expected = {name: state.get(name) for name in self._identity()}
        if expected != self._identity():
            raise DialError(
                wanted=f"the data and the batches that the run began with ({expected})",
                got=str(self._identity()),
                fix="resume with the same images, --batch-size and --seed, or start a new run",
            )
        self.epoch, self.step = state["epoch"], state["step"]

    def _identity(self) -> dict[str, Any]:
        size = self.batch_size
        return {
            "seed": self.seed,
            "batch_size": [size.source, size.target],
            "images": list(self._counts),
        }

    def _check(self, labels: int) -> None:
        if labels != self._counts[0]:
            raise DialError(
                wanted=f"a label for each of the {self._counts[0]} source images",
                got=f"{labels} labels",
                fix="pass pixels and labels of one prepared domain",
            )
        if self.seed < 0:
            raise DialError(
                wanted="a seed of 0 or more", got=str(self.seed), fix="use --seed 0, 1, 2, ..."
            )
        smallest = min(size for size in vars(self.batch_size).values() if size)
        if not 0 <= self._rank < self._world_size <= smallest:
            raise DialError(
                wanted="an image of each domain for every process",
                got=f"process {self._rank} of {self._world_size}, sub-batches of {self.batch_size}",
                fix="use larger batches or fewer processes",
            )
