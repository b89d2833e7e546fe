"""Any classification network of torchvision by its name, as in `torchvision:resnet18`."""

import difflib
from pathlib import Path
from typing import Any

from dial.backbones import _weights
from dial.backbones._discovery import find_classifier
from dial.backbones.interface import Backbone
from dial.errors import DialError

# Training with auxiliary classifiers gives several logits; these networks are built without.
_WITHOUT_AUXILIARIES = {"aux_logits": False, "init_weights": True}
_OPTIONS: dict[str, dict[str, Any]]
_OPTIONS = {"googlenet": _WITHOUT_AUXILIARIES, "inception_v3": _WITHOUT_AUXILIARIES}
_AUXILIARIES = ("aux1.", "aux2.", "AuxLogits.")


def create_variant(variant: str, *, num_classes: int, weights: str | Path) -> Backbone:
    """The entry `torchvision:NAME`, with the weights that torchvision thinks best.

    Raises:
        DialError: torchvision has no such network.
    """
    from torchvision import models  # slow, and not needed to know the name of this entry

    known = models.list_models(module=models)
    if variant not in known:
        close = difflib.get_close_matches(variant, known, n=3)
        raise DialError(
            wanted="the name of a classification network of torchvision",
            got=repr(variant),
            fix=f"for example {', '.join(close or ['resnet18'])}",
        )
    options = _OPTIONS.get(variant, {})
    if options and str(weights) != "none":
        # Their weights are of another scale of input, which the network then sees to.
        options = options | {"transform_input": True}
    network = models.get_model(variant, num_classes=num_classes, **options)
    public = models.get_model_weights(variant).DEFAULT
    classifier = find_classifier(network)
    started = _weights.start(
        network,
        weights,
        classifier=classifier,
        public=lambda: _weights.fetch(public.url, backbone=f"torchvision:{variant}"),
        surplus=_AUXILIARIES,
    )
    images = public.transforms()
    return Backbone.of(
        network,
        name=f"torchvision:{variant}",
        classifier=classifier,
        image_size=images.crop_size[0],
        crop_ratio=images.crop_size[0] / images.resize_size[0],
        mean=tuple(images.mean),
        std=tuple(images.std),
        **started,
    )
