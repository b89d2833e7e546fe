"""Any classification network of torchvision by its name, as in `torchvision:resnet18`."""

import difflib
from pathlib import Path
from typing import Any

from dial.backbones import _weights
from dial.backbones.interface import Backbone, find_classifier
from dial.errors import DialError
from dial.torchvision_guard import prepare_torchvision

# Auxiliary classifiers return several logits in training; these networks are built without.
_WITHOUT_AUXILIARIES = {"aux_logits": False, "init_weights": True}
_OPTIONS: dict[str, dict[str, Any]]
_OPTIONS = {"googlenet": _WITHOUT_AUXILIARIES, "inception_v3": _WITHOUT_AUXILIARIES}
_AUXILIARIES = ("aux1.", "aux2.", "AuxLogits.")


def create(*, variant: str, num_classes: int, weights: str | Path) -> Backbone:
    """Returns `torchvision:NAME`, with torchvision's default weights.

    Raises:
        DialError: torchvision has no such network.
    """
    prepare_torchvision()
    from torchvision import models  # slow, and not needed to list the entries

    names = models.list_models(module=models)
    if variant not in names:
        close = difflib.get_close_matches(variant, names, n=3)
        raise DialError(
            wanted="the name of a classification network of torchvision",
            got=repr(variant),
            fix=f"for example {', '.join(close or ['resnet18'])}",
        )
    options = _OPTIONS.get(variant, {})
    if options and str(weights) != "none":
        # Their weights expect another scale of input; the network converts it.
        options = options | {"transform_input": True}
    network = models.get_model(variant, num_classes=num_classes, **options)
    public = models.get_model_weights(variant).DEFAULT
    classifier = find_classifier(network)
    start = _weights.start(
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
        **start,
    )
