"""What a finished predictor makes of both domains, kept beside a run to judge it without labels."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dial import tensorfiles
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import PreparedDomain
from dial.data.transforms import Preprocessing
from dial.layers.context import use_domain_if_any
from dial.selection.observation import SAMPLE, Observation, observe

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

    def right(self) -> npt.NDArray[np.bool_]:
        """`(N,)`, which images are predicted as they are labelled."""
        assert self.labels is not None  # noqa: S101 - asked of the source alone
        found: npt.NDArray[np.bool_] = self.logits.argmax(1) == self.labels
        return found


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


class Sight(NamedTuple):
    """All that is seen when training is over, in the order of the images' content."""

    target: Observation
    """Logits of all images, features of up to 2,000."""
    unadapted: Observation | None
    """The same through the predictor without adaptation, where there is one."""
    training: Observation
    """Up to 1,000 images of the source."""
    held_out: Observation | None


@dataclass(frozen=True)
class Subjects:
    """What is looked at, and how it reaches a network: both domains, and what was held out."""

    source: PreparedDomain
    held_out: PreparedDomain | None
    target: PreparedDomain
    preprocessing: Preprocessing
    classifier: str
    """The name of the layer whose input are the features."""

    def look(self, predictor: nn.Module, unadapted: nn.Module | None) -> Sight:
        """Send images through plain networks in eval mode, each image once through each network.

        Source images go through the one without adaptation, where there is one: that is where a
        method with DA-layers sends them.
        """
        of_source = predictor if unadapted is None else unadapted
        held_out, target = self.held_out, self.target
        return Sight(
            target=self._observe(predictor, target),
            unadapted=None if unadapted is None else self._observe(unadapted, target),
            training=self._observe(of_source, self.source, most=SOURCE),
            held_out=None if held_out is None else self._observe(of_source, held_out, measured=0),
        )

    def keep(self, folder: Path, sight: Sight) -> Outputs:
        """Put the outputs beside the run."""
        found = self._outputs(sight)
        assert self.source.labels is not None  # noqa: S101 - a source has them
        about = {"classes": self.source.labels.classes, "images": "in the order of their content"}
        save(folder / NAME, found, about=about)
        return found

    def midway(self, network: nn.Module) -> Outputs:
        """The same of a network that is still trained, with its running statistics."""
        look, held_out = partial(self._observe, network, measured=0), self.held_out
        with use_domain_if_any(network, "source"):
            training = look(self.source, most=SOURCE)
            held = None if held_out is None else look(held_out)
        target = look(self.target, most=TARGET)
        return self._outputs(Sight(target, None, training, held))

    def _observe(
        self,
        network: nn.Module,
        domain: PreparedDomain,
        *,
        most: int | None = None,
        measured: int = SAMPLE,
    ) -> Observation:
        images = EvaluationBatches(
            domain.pixels, preprocessing=self.preprocessing, by_content=True, most=most
        )
        kept = TARGET if domain is self.target else len(images.rows)
        return observe(network, images, classifier=self.classifier, kept=kept, measured=measured)

    def _outputs(self, sight: Sight) -> Outputs:
        """What of it is judged by; of the target, no labels."""
        target, unadapted, training, held_out = sight
        return Outputs(
            target=_seen(target, None),
            training=_seen(training, self.source),
            held_out=None if held_out is None else _seen(held_out, self.held_out),
            unadapted=None if unadapted is None else _seen(unadapted, None),
        )


def _seen(observation: Observation, labelled: PreparedDomain | None) -> Seen:
    """The images that features are kept of."""
    features = observation.features.numpy()
    labels = None
    if labelled is not None and labelled.labels is not None:
        labels = labelled.labels.indices[labelled.pixels.order[: len(features)]]
    return Seen(observation.logits[: len(features)].numpy(), features, labels)


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
