"""Any classification network of timm by its name, as in `timm:resnet18`."""

import difflib
from pathlib import Path
from typing import Any

from dial.backbones import _weights
from dial.backbones.interface import Backbone, find_classifier
from dial.errors import DialError
from dial.torchvision_guard import prepare_torchvision

_HUB = "https://huggingface.co/{repository}/resolve/main/{file}"


def create(*, variant: str, num_classes: int, weights: str | Path) -> Backbone:
    """Returns `timm:NAME`; a name with a tag, `resnet18.tv_in1k`, chooses among public weights.

    Raises:
        DialError: timm has no such network, or one without public weights.
    """
    prepare_torchvision()
    import timm  # slow, and not needed to list the entries

    if not timm.is_model(variant):
        close = difflib.get_close_matches(variant, timm.list_models(), n=3)
        raise DialError(
            wanted="the name of a network of timm",
            got=repr(variant),
            fix=f"for example {', '.join(close or ['resnet18'])}; timm.list_models() has them all",
        )
    network = timm.create_model(variant, num_classes=num_classes)
    classifier = find_classifier(network)
    if str(weights) == "auto":
        # timm itself loads its public files: some need their tensors rearranged.
        file = _public_file(variant, network.pretrained_cfg)
        network = timm.create_model(
            variant,
            num_classes=num_classes,
            pretrained=True,
            pretrained_cfg_overlay={"file": str(file)},
        )
        other = network.pretrained_cfg["num_classes"] != num_classes
        start: dict[str, Any] = {"pretrained": True, "new": (classifier,) if other else ()}
    else:
        start = _weights.start(network, weights, classifier=classifier, public=None)
    return Backbone.of(network, name=f"timm:{variant}", classifier=classifier, **start)


def _public_file(variant: str, configuration: dict[str, Any]) -> Path:
    """A network's public weights: from the hub's cache, torch's, or downloaded into torch's."""
    repository = configuration.get("hf_hub_id")
    name = configuration.get("hf_hub_filename") or "model.safetensors"
    if repository:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(repository, name)
        if isinstance(cached, str):
            return Path(cached)
        url = _HUB.format(repository=repository, file=name)
        file = f"{repository.rpartition('/')[2]}{Path(name).suffix}"
        return _weights.fetch(url, backbone=f"timm:{variant}", name=file)
    if configuration.get("url"):
        return _weights.fetch(configuration["url"], backbone=f"timm:{variant}")
    raise DialError(
        wanted=f"public weights of timm:{variant}",
        got="none, timm knows of no file",
        fix="choose another network of timm.list_models(pretrained=True), or --weights none",
    )
