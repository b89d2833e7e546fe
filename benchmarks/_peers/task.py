"""What every library is given: one network, the same batches and learning rates, one clock."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial import backbones
from dial.backbones import Backbone
from dial.data.batches import Batch, Batches
from dial.data.datasets import open_pair
from dial.data.evaluation import EvaluationBatches
from dial.data.pixels import Pixels
from dial.data.prepare import PreparedSource, prepare_pair
from dial.data.transforms import Preprocessing
from dial.deployment.model import predict
from dial.methods import Trainee
from dial.training.engine import build_optimizer
from dial.training.settings import Settings, preset

DOMAIN_WEIGHT = 0.1
"""Of DANN's domain loss, as in `revgrad`; with their default of 1 both end below source only."""
DOMAINS = {"A": "office31:amazon", "D": "office31:dslr", "W": "office31:webcam"}


class Network(nn.Sequential):
    """A backbone cut in two: features, then the classifier.

    Pretrained statistics stay frozen in training, as in our own methods without DA-layers.
    """

    def __init__(self, backbone: Backbone) -> None:
        classifier = backbone.network.get_submodule(backbone.classifier)
        backbone.network.set_submodule(backbone.classifier, nn.Identity())
        super().__init__(backbone.network, classifier)
        self.frozen_norms = backbone.pretrained

    def forward(self, input: Tensor, sample_weight: None = None) -> Tensor:  # noqa: A002, ARG002
        """Returns the logits; skada passes weights even where there are none."""
        return super().forward(input)  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> "Network":
        """Set training mode, but for pretrained normalization layers."""
        super().train(mode)
        for module in self.modules() if self.frozen_norms else ():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self


@dataclass
class Task:
    """A transfer, with no label of the target."""

    settings: Settings
    backbone: Backbone
    source: PreparedSource
    target: Pixels
    preprocessing: Preprocessing
    ticks: list[float] = field(default_factory=list)
    """The times at which steps began or ended."""

    def batches(self, *, with_target: bool = True) -> Batches:
        """Returns augmented batches, those of `dial adapt` with the same settings."""
        return Batches(
            self.source.pixels,
            self.source.labels,
            self.target if with_target else None,
            preprocessing=self.preprocessing,
            batch_size=self.settings.batch_size,
            seed=self.settings.seed,
            workers=1,
        )

    def images(self, pixels: Pixels, *, by_content: bool = False) -> EvaluationBatches:
        """Returns center crops of all images of a domain."""
        return EvaluationBatches(pixels, preprocessing=self.preprocessing, by_content=by_content)

    def network(self, extra: nn.Module | None = None) -> tuple[Network, torch.optim.Optimizer]:
        """Returns the network and our optimizer of it and of a library's own module."""
        trainee = Trainee(self.backbone, extra=extra)
        trainee.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = build_optimizer(trainee, self.settings)
        return Network(self.backbone), optimizer

    def steps(self, optimizer: torch.optim.Optimizer) -> Iterator[Batch]:
        """Yields the batch of each step, with the learning rate set and the time taken."""
        total = self.settings.steps or 1
        endless = chain.from_iterable(repeat(self.batches()))
        for step, batch in enumerate(islice(endless, total)):
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * self.settings.rate(step / total)
            self.tick()
            yield batch
        self.tick()

    def tick(self, *_: Any) -> None:
        """Note the time at which a step begins or ends."""
        self.ticks.append(time.perf_counter())

    @property
    def step_milliseconds(self) -> float | None:
        """The median time of a step; None if there were none."""
        times = [1e3 * (end - start) for start, end in pairwise(self.ticks)]
        return statistics.median(times) if times else None

    def predict(self, network: nn.Module) -> Any:
        """Returns the classes that a network predicts for all target images, `(N,)`."""
        with torch.no_grad():
            return predict(network, self.images(self.target)).argmax(1).numpy()


def open_task(
    name: str,
    *,
    steps: int,
    seed: int,
    image_size: int | None,
    data: str | None,
    cache_dir: str | None,
) -> tuple[Task, Any]:
    """Returns a transfer, and the target's labels `(N,)` for scoring."""
    if name == "digits":
        pair, start = ("digits:mnist", "digits:optdigits"), "digits_cnn"
    else:
        pair, start = (DOMAINS[name[0]], DOMAINS[name[-1]]), "efficientnet_lite0"
    settings = preset(start, steps=steps, seed=seed, image_size=image_size, holdout=0.0)
    first, second = open_pair(*pair, data=data)
    torch.manual_seed(seed)
    backbone = backbones.create(settings.backbone, num_classes=len(first.labels.classes))
    preprocessing = Preprocessing.for_network(backbone, settings.image_size)
    sizes = {"resize": preprocessing.resize, "channels": preprocessing.channels}
    source, target = prepare_pair(first, second, **sizes, cache_dir=cache_dir, quiet=True)
    assert target.labels is not None  # noqa: S101 - known data sets have them
    task = Task(settings, backbone, source, target.pixels, preprocessing)
    return task, np.asarray(target.labels.indices)
