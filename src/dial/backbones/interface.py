"""What training, prediction and export need to know about a network, in one record."""

import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

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
    minus `mean`, divided by `std`. `classifier`, `append_after`, `frozen` and `new` hold names of
    modules in the network; the last two apply to everything inside these modules.

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
    append_after: tuple[str, ...] = ()
    """Layers that `convert` appends a DA-layer to."""
    frozen: tuple[str, ...] = ()
    """Parts that are not trained; their DA-layers still take each domain's statistics."""
    new: tuple[str, ...] = ()
    """Parts that start from random values on top of pretrained ones."""
    pretrained: bool = False

    def __post_init__(self) -> None:
        modules = dict(self.network.named_modules())
        for field in ("append_after", "frozen", "new"):
            for name in getattr(self, field):
                if name not in modules:
                    raise DialError(
                        wanted=f"names of parts of {self.name} in `{field}`",
                        got=repr(name),
                        fix="take names from network.named_modules()",
                    )
        find_classifier(self.network, self.classifier)

    @classmethod
    def of(
        cls, network: nn.Module, *, name: str = "", classifier: str | None = None, **settings: Any
    ) -> "Backbone":
        """Returns the record of any network; what is not given is found in the network.

        The classifier is the one that timm names, or else the last linear layer (the last
        convolution where there is no linear layer). Image size, mean and deviation are timm's,
        or else 224 pixels and ImageNet's.

        Raises:
            DialError: no classifier, or a name that the network does not have.
        """
        settings = find_input(network) | settings
        return cls(
            name=name or type(network).__name__,
            network=network,
            classifier=find_classifier(network, classifier),
            **settings,
        )

    @property
    def num_features(self) -> int:
        """The number of the classifier's input features."""
        return self._classifier_weight().shape[1]

    @property
    def num_classes(self) -> int:
        """The number of the classifier's outputs."""
        return self._classifier_weight().shape[0]

    def convert(
        self,
        reference: "str | Reference" = "normal",
        domains: Sequence[str] = ("source", "target"),
        **settings: Any,
    ) -> nn.Module:
        """Apply `dial.convert` to the network, in place, with a DA-layer after `append_after`.

        `settings` are further arguments of `dial.convert`.
        """
        from dial.layers import convert  # a finished model runs without any DA-layer code

        return convert(self.network, reference, domains, self.append_after, **settings)

    @contextmanager
    def hidden_features(self) -> Iterator[list[Tensor]]:
        """Collect the last hidden features of each forward pass inside the `with`.

        They are the classifier's input, `(N, num_features)`, averaged over positions where the
        classifier is a convolution. Works before and after `convert`, on joint batches too.

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
        layer: Any = _inner(self.network.get_submodule(self.classifier))
        return layer.weight  # type: ignore[no-any-return]


@contextmanager
def hidden_features(network: nn.Module, classifier: str) -> Iterator[list[Tensor]]:
    """`Backbone.hidden_features` of any network whose classifier has this name."""
    features: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0]
        features.append(x.flatten(2).mean(2) if x.dim() > 2 else x)  # noqa: PLR2004

    hook = network.get_submodule(classifier).register_forward_pre_hook(keep)
    try:
        yield features
    finally:
        hook.remove()


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


def _inner(module: nn.Module) -> nn.Module:
    """The layer that `convert` appended a DA-layer to; any other module as it is."""
    layers = sys.modules.get("dial.layers")  # without it, nothing was converted
    return module[0] if layers and isinstance(module, layers.Appended) else module


def _last(layers: dict[str, nn.Module]) -> str | None:
    linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
    outside = [name for name in linear or layers if name.rpartition(".")[0] not in layers]
    return outside[-1] if outside else None


def _timm_configuration(network: nn.Module) -> dict[str, Any]:
    """What timm says about a network of its own; empty for others."""
    configuration = getattr(network, "pretrained_cfg", None)
    return configuration if isinstance(configuration, dict) else {}
