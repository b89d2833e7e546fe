"""What training needs to know of a backbone: one record around the network."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dial.backbones._discovery import find_classifier, find_input
from dial.errors import DialError
from dial.layers.conversion import Appended, convert
from dial.references import Reference

_WITH_BIAS = (nn.Linear, nn.modules.conv._ConvNd)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A network and what training, prediction and export have to know about it.

    Images reach the network as `(N, C, image_size, image_size)`, RGB (or one grey channel) in
    [0, 1], less `mean` and divided by `std`. Names in `classifier`, `append_after`, `frozen` and
    `new` are names of modules in the network; the last three hold for all that is inside them.

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
    """Layers that `convert` puts a DA-layer behind."""
    frozen: tuple[str, ...] = ()
    """Parts that are not learnt; their DA-layers still take each domain's statistics."""
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
                        fix="take names of network.named_modules()",
                    )
        find_classifier(self.network, self.classifier)

    @classmethod
    def of(
        cls, network: nn.Module, *, name: str = "", classifier: str | None = None, **settings: Any
    ) -> "Backbone":
        """The record of any network; what is not given is found in it.

        The classifier is the one timm names, or else the last linear layer (the last convolution
        where there is no linear one). Size, mean and deviation are timm's, or else 224 pixels
        and ImageNet's.

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
        """How many features the classifier takes."""
        return self._classifier_weight().shape[1]

    @property
    def num_classes(self) -> int:
        """How many classes it tells apart."""
        return self._classifier_weight().shape[0]

    def convert(
        self,
        reference: str | Reference = "normal",
        domains: Sequence[str] = ("source", "target"),
    ) -> nn.Module:
        """`dial.convert` of the network, in place, with DA-layers behind `append_after` too."""
        return convert(self.network, reference, domains, append_after=self.append_after)

    @contextmanager
    def hidden_features(self) -> Iterator[list[Tensor]]:
        """Collect the last hidden features of each forward pass inside the `with`.

        They are the input of the classifier, `(N, num_features)`, averaged over positions where
        the classifier is a convolution. Works before and after `convert`, on joint batches too.

        >>> import torch
        >>> backbone = Backbone.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)))
        >>> with backbone.hidden_features() as features:
        ...     logits = backbone.network(torch.randn(2, 3, 2, 2))
        >>> features[0].shape
        torch.Size([2, 12])
        """
        with hidden_features(self.network, self.classifier) as found:
            yield found

    def freeze(self) -> None:
        """Switch off the gradients of the frozen parts."""
        for name in self.frozen:
            self.network.get_submodule(name).requires_grad_(requires_grad=False)

    def parameter_groups(
        self, lr: float, *, weight_decay: float, new_rate: float = 10.0, bias_rate: float = 1.0
    ) -> list[dict[str, Any]]:
        """The network's parameters in groups for an optimizer; also freezes what is to be frozen.

        To be called after `convert`, so that the layers it appended are in.

        Args:
            lr: the rate of fine-tuned layers.
            weight_decay: of weights; biases and the affine parameters of norms and DA-layers
                have none.
            new_rate: factor on the rate of new layers.
            bias_rate: factor on the rate of the biases of fine-tuned linear and convolutional
                layers; 2 in the authors' Caffe code.
        """
        self.freeze()
        biases = self._biases()
        groups: dict[tuple[float, float], dict[str, Any]] = {}
        for name, parameter in self.network.named_parameters():
            if not parameter.requires_grad:
                continue
            new = any(name.startswith(f"{part}.") for part in self.new)
            rate = new_rate if new else bias_rate if parameter in biases else 1.0
            decay = weight_decay if parameter.dim() > 1 else 0.0
            group = {"params": [], "lr": lr * rate, "weight_decay": decay}
            groups.setdefault((rate, decay), group)["params"].append(parameter)
        return list(groups.values())

    def _biases(self) -> set[nn.Parameter]:
        layers = [module for module in self.network.modules() if isinstance(module, _WITH_BIAS)]
        return {layer.bias for layer in layers if isinstance(layer.bias, nn.Parameter)}

    def _classifier_weight(self) -> Tensor:
        layer = self.network.get_submodule(self.classifier)
        weight = (layer[0] if isinstance(layer, Appended) else layer).weight
        assert isinstance(weight, Tensor)  # noqa: S101 - found by find_classifier
        return weight


@contextmanager
def hidden_features(network: nn.Module, classifier: str) -> Iterator[list[Tensor]]:
    """`Backbone.hidden_features` of any network, whose classifier has this name."""
    found: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0]
        found.append(x.flatten(2).mean(2) if x.dim() > 2 else x)  # noqa: PLR2004

    hook = network.get_submodule(classifier).register_forward_pre_hook(keep)
    try:
        yield found
    finally:
        hook.remove()
