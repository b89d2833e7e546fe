"""Networks to adapt, one builder a file: by the names that `--backbone` takes."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from torch import nn

from dial import registry
from dial.backbones.interface import Backbone, hidden_features
from dial.errors import DialError

__all__ = ["Backbone", "build", "create", "describe", "hidden_features"]


def build(name: str, num_classes: int = 31, weights: str | Path = "auto") -> nn.Module:
    """A network by the name that `--backbone` takes, before conversion.

    Args:
        name: one of `describe()`, such as `efficientnet_lite0` or `timm:resnet18`.
        num_classes: how many classes its classifier tells apart.
        weights: `auto` for the public weights, `none` for random ones, or a file.

    Raises:
        DialError: an unknown name, or weights that cannot be had, read, or fitted.

    >>> build("digits_cnn", num_classes=10).classifier
    Linear(in_features=1152, out_features=10, bias=True)
    """
    return create(name, num_classes=num_classes, weights=weights).network


def create(
    name: str,
    *,
    num_classes: int = 31,
    weights: str | Path = "auto",
    align_logits: bool | None = None,
    frozen: Sequence[str] | None = None,
) -> Backbone:
    """A backbone by its name: the network of `build`, and what training needs to know of it.

    Args:
        name: as for `build`.
        num_classes: as for `build`.
        weights: as for `build`.
        align_logits: whether a DA-layer comes behind the classifier; the backbone's own default
            for None.
        frozen: the names of parts that are not learnt; the backbone's own for None.

    Raises:
        DialError: as `build` does, or unknown names in `frozen`.

    >>> create("digits_cnn", num_classes=10, align_logits=False).append_after
    ()
    """
    if num_classes < 1:
        raise DialError(
            wanted="a number of classes", got=repr(num_classes), fix="give 2 or more classes"
        )
    entry, colon, variant = name.partition(":")
    module = registry.load(_package(), entry)
    family = hasattr(module, "create_variant")
    if bool(variant) != family or bool(colon) != family:
        raise DialError(
            wanted=f"the name of a backbone, such as {_shown(module)}",
            got=repr(name),
            fix="put the network's name behind the colon" if family else f"leave out ':{variant}'",
        )
    backbone: Backbone = (
        module.create_variant(variant, num_classes=num_classes, weights=weights)
        if family
        else module.create(num_classes=num_classes, weights=weights)
    )
    if align_logits is not None:
        rest = [layer for layer in backbone.append_after if layer != backbone.classifier]
        added = [backbone.classifier] if align_logits else []
        backbone = replace(backbone, append_after=(*rest, *added))
    return backbone if frozen is None else replace(backbone, frozen=tuple(frozen))


def describe() -> dict[str, str]:
    """Every backbone's name, as `--backbone` takes it, with one line about it.

    >>> [name for name in describe() if ":" in name]
    ['timm:NAME', 'torchvision:NAME']
    """
    modules = [registry.load(_package(), name) for name in registry.names(_package())]
    return {_shown(module): (module.__doc__ or "").partition("\n")[0] for module in modules}


def _shown(module: ModuleType) -> str:
    name = module.__name__.rpartition(".")[2]
    return f"{name}:NAME" if hasattr(module, "create_variant") else name


def _package() -> ModuleType:
    return sys.modules[__name__]
