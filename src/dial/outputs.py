"""What a finished predictor makes of both domains, kept beside a run to judge it without labels."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dial import tensorfiles
from dial.backbones import hidden_features
from dial.calibration import to_network
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import PreparedDomain
from dial.data.transforms import Preprocessing
from dial.domains import DomainSpecific, use_domain

NAME = "outputs.safetensors"
VERSION = 1
SOURCE, TARGET = 1000, 2000
"""Training images of the source and images of the target that are kept at most."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Seen:
    """Images in the eyes of a predictor: logits `(N, K)` and last hidden features `(N, D)`."""

    logits: Floats
    features: Floats
    labels: npt.NDArray[np.int64] | None = None
    """`(N,)`, of the source's images; the target's never come here."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """The source in its own predictor's eyes, and the target in the target's predictor's.

    Where a method has but one predictor, it is that one. Images are in the order of their content.
    """

    target: Seen
    training: Seen
    """Images of the source that were trained on."""
    held_out: Seen | None
    """Images of the source that were not; None where there are none."""
    unadapted: Seen | None = None
    """The target in the eyes of the predictor without adaptation, where there is one. For a
    comparison when training is over; it is not kept, for it would double the file."""


@dataclass(frozen=True)
class Subjects:
    """What is looked at, and how it reaches a network: both domains, and what was held out."""

    source: PreparedDomain
    held_out: PreparedDomain | None
    target: PreparedDomain
    preprocessing: Preprocessing
    classifier: str
    """The name of the layer whose input are the features."""

    def keep(self, folder: Path, predictor: nn.Module, unadapted: nn.Module | None) -> Outputs:
        """Send images through plain networks in eval mode, and put the outputs beside the run.

        The networks are not changed. Source images go through the one without adaptation, where
        there is one: that is where a method with DA-layers sends them.
        """
        held_out, target = self.held_out, self._target()
        of_source = predictor if unadapted is None else unadapted
        found = Outputs(
            target=self._look(predictor, target, most=TARGET),
            training=self._look(of_source, self.source, most=SOURCE),
            held_out=None if held_out is None else self._look(of_source, held_out),
            unadapted=None if unadapted is None else self._look(unadapted, target, most=TARGET),
        )
        assert self.source.labels is not None  # noqa: S101 - a source has them
        about = {"classes": self.source.labels.classes, "images": "in the order of their content"}
        save(folder / NAME, found, about=about)
        return found

    def midway(self, network: nn.Module) -> Outputs:
        """The same of a network that is still trained, with its running statistics."""
        aligned = any(isinstance(module, DomainSpecific) for module in network.modules())
        held_out = self.held_out
        with use_domain(network, "source") if aligned else nullcontext():
            training = self._look(network, self.source, most=SOURCE)
            held = None if held_out is None else self._look(network, held_out)
        target = self._look(network, self._target(), most=TARGET)
        return Outputs(target=target, training=training, held_out=held)

    def _target(self) -> PreparedDomain:
        """The target without its labels."""
        return replace(self.target, labels=None)

    def _look(self, network: nn.Module, domain: PreparedDomain, *, most: int | None = None) -> Seen:
        images = EvaluationBatches(
            domain.pixels, preprocessing=self.preprocessing, by_content=True, most=most
        )
        logits, features = run(network, images, classifier=self.classifier)
        labels = None if domain.labels is None else domain.labels.indices[images.rows]
        return Seen(logits.numpy(), features.numpy(), labels)


@torch.no_grad()
def run(network: nn.Module, batches: Iterable[Tensor], *, classifier: str) -> tuple[Tensor, Tensor]:
    """Logits `(N, K)` and features `(N, D)` of images, in eval mode, on the CPU, in float32."""
    network.eval()
    logits, kept = [], []
    with hidden_features(network, classifier) as features:
        for images in batches:
            logits.append(network(to_network(images, network)).float().cpu())
            kept.append(features.pop().float().cpu())
    return torch.cat(logits), torch.cat(kept)


def save(path: Path, outputs: Outputs, *, about: dict[str, Any]) -> None:
    """Write them as safetensors; `about`, which goes to JSON, stands in the file's metadata."""
    tensors = {
        f"{part}.{name}": torch.tensor(array)
        for part, seen in vars(outputs).items()
        if seen is not None and part != "unadapted"
        for name, array in vars(seen).items()
        if array is not None
    }
    tensorfiles.save(path, tensors, about={"version": VERSION, **about})


def load(folder: Path) -> Outputs:
    """The outputs in a run's folder.

    Raises:
        DialError: there are none, damaged ones, or ones of another version.
    """
    _, tensors = tensorfiles.load(
        folder / NAME,
        wanted="the outputs of a finished run",
        version=VERSION,
        fix="finish the run, or make it again with this version of dial in another folder",
    )
    parts: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        part, _, what = name.partition(".")
        parts.setdefault(part, {})[what] = tensor.numpy()
    parts.setdefault("held_out", {})
    return Outputs(**{part: Seen(**seen) if seen else None for part, seen in parts.items()})  # type: ignore[arg-type]
