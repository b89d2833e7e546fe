"""What training, prediction and export need to know about a network, in one record."""

import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.errors import DialError

if TYPE_CHECKING:
    from dial.references import Reference

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_CLASSIFIERS = (nn.Linear, nn.Conv2d)
_WITH_BIAS = (nn.Linear, nn.modules.conv._ConvNd)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A network and what training, prediction and export need to know about it.

    The network's input is `(N, C, image_size, image_size)`: RGB (or one gray channel) in [0, 1],
    minus `mean`, divided by `std`. `classifier`, `append_after`, `insert_before`, `frozen` and
    `new` hold names of modules in the network; the last two apply to everything inside these.

    >>> backbone = Backbone.of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 5)))
    >>> backbone.classifier, backbone.num_features, backbone.num_classes
    ('2', 32, 5)
    """

    name: str
    network: nn.Module
    classifier: str
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_ratio: float = 0.875
    """The side of the crop over the shorter side of the resized image, when evaluating."""
    distort: float = 0.0
    """How far training images are stretched, turned and sheared at random; see `Preprocessing`."""
    append_after: tuple[str, ...] = ()
    """Layers that `convert` appends a DA-layer to."""
    insert_before: tuple[str, ...] = ()
    """Layers that `convert` inserts a DA-layer before."""
    frozen: tuple[str, ...] = ()
    """Parts that are not trained; their DA-layers still take each domain's statistics."""
    new: tuple[str, ...] = ()
    """Parts that start from random values on top of pretrained ones."""
    pretrained: bool = False
    sources: tuple[str, ...] = ("source",)
    """Names of the labelled domains in the DA-layers."""
    targets: tuple[str, ...] = ("target",)
    """Names of the domains to adapt to."""

    def __post_init__(self) -> None:
        modules = dict(self.network.named_modules())
        for field in ("append_after", "insert_before", "frozen", "new"):
            for name in getattr(self, field):
                if name not in modules:
                    close = difflib.get_close_matches(name, modules, n=3) or list(modules)[-3:]
                    raise DialError(
                        wanted=f"names of parts of {self.name} in `{field}`",
                        got=repr(name),
                        fix=f"take names from network.named_modules(), such as {', '.join(close)}",
                    )
        find_classifier(self.network, self.classifier)

    @classmethod
    def of(
        cls, network: nn.Module, *, name: str = "", classifier: str | None = None, **settings: Any
    ) -> "Backbone":
        """Returns the record of any network; what is not given is found in the network.

        The classifier is the one that timm names, or else the last linear layer (the last
        convolution where there is no linear layer). Image size, mean and deviation are timm's,
        or else 224 pixels and ImageNet's. A network without any BatchNorm gets a DA-layer before
        and one after its classifier, unless `append_after` or `insert_before` is given.

        Raises:
            DialError: no classifier, or a name that the network does not have.
        """
        classifier = find_classifier(network, classifier)
        return cls(
            name=name or type(network).__name__,
            network=network,
            classifier=classifier,
            **(find_input(network) | _find_layers(network, classifier, settings) | settings),
        )

    @property
    def num_features(self) -> int:
        """The number of the classifier's input features."""
        return self._classifier_weight().shape[1]

    @property
    def num_classes(self) -> int:
        """The number of the classifier's outputs."""
        return self._classifier_weight().shape[0]

    def normalizes(self) -> bool:
        """Returns whether the network has BatchNorms, or DA-layers in their place."""
        return _has_norms(self.network)

    def convert(
        self,
        reference: "str | Reference" = "normal",
        domains: Sequence[str] | None = None,
        **settings: Any,
    ) -> nn.Module:
        """Apply `dial.convert` to the network, in place, with the layers this record names.

        The domains are by default `sources` and `targets`; `settings` are further arguments of
        `dial.convert`.
        """
        from dial.layers import convert  # a finished model runs without any DA-layer code

        domains = domains or (*self.sources, *self.targets)
        around = self.append_after, self.insert_before
        return convert(self.network, reference, domains, *around, **settings)

    @contextmanager
    def hidden_features(self) -> Iterator[list[Tensor]]:
        """Collect the last hidden features of each forward pass inside the `with`.

        They are the input of the linear layer or convolution that is the classifier, after a
        DA-layer inserted before it: `(N, num_features)`, averaged over positions or tokens where
        there are any. Works before and after `convert`, on joint batches too.

        >>> import torch
        >>> backbone = Backbone.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)))
        >>> with backbone.hidden_features() as features:
        ...     logits = backbone.network(torch.randn(2, 3, 2, 2))
        >>> features[0].shape
        torch.Size([2, 12])
        """
        with hidden_features(self.network, self.classifier) as features:
            yield features

    def freeze(self) -> None:
        """Switch off the gradients of the frozen parts."""
        for name in self.frozen:
            self.network.get_submodule(name).requires_grad_(requires_grad=False)

    def parameter_groups(
        self, lr: float, *, weight_decay: float, new_rate: float = 10.0, bias_rate: float = 1.0
    ) -> list[dict[str, Any]]:
        """Returns the network's parameters in groups for an optimizer; freezes the frozen parts.

        Call it after `convert`, so that the layers it appended are included.

        Args:
            lr: the learning rate of fine-tuned layers.
            weight_decay: of weights; biases, the affine parameters of norms, and all parameters
                of DA-layers have none.
            new_rate: factor on the learning rate of new layers.
            bias_rate: factor on the learning rate of the biases of fine-tuned linear and
                convolutional layers; 2 in the authors' Caffe code.
        """
        from dial.layers import DomainSpecific

        self.freeze()
        biases = self._biases()
        layers = [m for m in self.network.modules() if isinstance(m, DomainSpecific)]
        of_layers = {parameter for layer in layers for parameter in layer.parameters()}
        groups: dict[tuple[float, float], dict[str, Any]] = {}
        for name, parameter in self.network.named_parameters():
            if not parameter.requires_grad:
                continue
            new = any(name.startswith(f"{part}.") for part in self.new)
            rate = new_rate if new else bias_rate if parameter in biases else 1.0
            decays = parameter.dim() > 1 and parameter not in of_layers
            decay = weight_decay if decays else 0.0
            group = {"params": [], "lr": lr * rate, "weight_decay": decay}
            groups.setdefault((rate, decay), group)["params"].append(parameter)
        return list(groups.values())

    def _biases(self) -> set[nn.Parameter]:
        layers = [module for module in self.network.modules() if isinstance(module, _WITH_BIAS)]
        return {layer.bias for layer in layers if isinstance(layer.bias, nn.Parameter)}

    def _classifier_weight(self) -> Tensor:
        layer: Any = classifier_layer(self.network, self.classifier)
        return layer.weight  # type: ignore[no-any-return]


@contextmanager
def hidden_features(network: nn.Module, classifier: str) -> Iterator[list[Tensor]]:
    """`Backbone.hidden_features` of any network whose classifier has this name."""
    features: list[Tensor] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0]
        if x.dim() > 2:  # noqa: PLR2004
            x = x.movedim(-1, 1) if isinstance(layer, nn.Linear) else x
            x = x.flatten(2).mean(2)
        features.append(x)

    hook = classifier_layer(network, classifier).register_forward_pre_hook(keep)
    try:
        yield features
    finally:
        hook.remove()


def classifier_layer(network: nn.Module, name: str) -> nn.Module:
    """Returns the linear layer or convolution of a classifier, without what is around it.

    Around it may be DA-layers, or BatchNorms where those could not be merged into it.
    """
    layer = network.get_submodule(name)
    while isinstance(layer, nn.Sequential):
        layer = next(m for m in layer if isinstance(m, (*_CLASSIFIERS, nn.Sequential)))
    return layer


def find_classifier(network: nn.Module, name: str | None = None) -> str:
    """Returns the name of the layer that computes the logits; a name that is given is checked.

    Networks of timm name it. In others it is the last linear layer, or the last convolution where
    there is no linear layer.

    Raises:
        DialError: there is no such layer, or a layer of another kind has that name.

    >>> find_classifier(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    '2'
    """
    modules = dict(network.named_modules())
    layers = {n: _inner(module) for n, module in modules.items() if n}
    layers = {n: layer for n, layer in layers.items() if isinstance(layer, _CLASSIFIERS)}
    if name is None:
        name = _timm_configuration(network).get("classifier") or _last(layers)
    if isinstance(name, (tuple, list)):
        raise DialError(
            wanted=f"one classifier in {type(network).__name__}",
            got=f"{len(name)}, {', '.join(map(str, name))}",
            fix="choose a network with one, such as the variant that is not distilled",
        )
    if name in layers:
        return str(name)
    close = difflib.get_close_matches(str(name), layers, n=3) or list(layers)[-3:]
    raise DialError(
        wanted=f"one linear or convolutional layer of {type(network).__name__} as its classifier",
        got=f"{name!r}" + (f", a {type(modules[name]).__name__}" if name in modules else ""),
        fix="give its name as `classifier`" + (f", such as {', '.join(close)}" if close else ""),
    )


def find_input(network: nn.Module) -> dict[str, Any]:
    """Returns image size, crop, mean and deviation: timm's for its networks, or ImageNet's."""
    configuration = _timm_configuration(network)
    return {
        "image_size": int(configuration.get("input_size", (3, 224, 224))[-1]),
        "mean": tuple(configuration.get("mean", IMAGENET_MEAN)),
        "std": tuple(configuration.get("std", IMAGENET_STD)),
        "crop_ratio": float(configuration.get("crop_pct", 0.875)),
    }


def _find_layers(
    network: nn.Module, classifier: str, given: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """Returns where a network without BatchNorm gets DA-layers; nothing for others."""
    if given.keys() & {"append_after", "insert_before"} or _has_norms(network):
        return {}
    return {"append_after": (classifier,), "insert_before": (classifier,)}


def _has_norms(network: nn.Module) -> bool:
    layers = sys.modules.get("dial.layers")  # without it, nothing was converted
    norms = (_BatchNorm, layers.DomainSpecific) if layers else _BatchNorm
    return any(isinstance(module, norms) for module in network.modules())


def _inner(module: nn.Module) -> nn.Module:
    """The layer that `convert` put DA-layers around; any other module as it is."""
    layers = sys.modules.get("dial.layers")  # without it, nothing was converted
    return module.layer if layers and isinstance(module, layers.AlignedLayer) else module


def _last(layers: dict[str, nn.Module]) -> str | None:
    linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
    outside = [name for name in linear or layers if name.rpartition(".")[0] not in layers]
    return outside[-1] if outside else None


def _timm_configuration(network: nn.Module) -> dict[str, Any]:
    """What timm says about a network of its own; empty for others."""
    configuration = getattr(network, "pretrained_cfg", None)
    return configuration if isinstance(configuration, dict) else {}
