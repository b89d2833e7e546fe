"""`use_domain`: which domain, or domains, the next batches of a network belong to."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from dial.errors import DialError

Parts = tuple[tuple[int, int | None], ...]
"""Consecutive parts of a batch: index of the domain and number of samples, None for all."""


class DomainSpecific(nn.Module):
    """A layer that treats each domain in its own way, as selected by `use_domain`.

    Args:
        domains: the names of the domains, any number; the last is active outside `use_domain`.

    Raises:
        DialError: no domains, or names that are not distinct.
    """

    def __init__(self, domains: Sequence[str]) -> None:
        super().__init__()
        names = tuple(domains)
        distinct = len(set(names)) == len(names) and all(isinstance(n, str) and n for n in names)
        if isinstance(domains, str) or not names or not distinct:
            raise DialError(
                wanted="the names of one or more domains, all different",
                got=f"domains={domains!r}",
                fix='for example domains=("source", "target")',
            )
        self.domains = names
        self.name = ""
        self._parts: Parts | None = None

    def index_of(self, domain: str) -> int:
        """Returns the index of a domain.

        Raises:
            DialError: the layer does not have the domain.
        """
        return _index(domain, self.domains)

    def parts(self, x: Tensor) -> list[tuple[int, int]]:
        """Returns index of the domain and number of samples of each non-empty part of a batch.

        Raises:
            DialError: the counts do not add up to the batch.
        """
        parts, start = [], 0
        for index, size in self._parts or ((len(self.domains) - 1, None),):
            count = len(x) if size is None else size
            start += count
            if count:
                parts.append((index, count))
        if start != len(x):
            counts = {self.domains[index]: size for index, size in self._parts or ()}
            raise DialError(
                wanted=f"a joint batch of {start} samples ({counts}) in {self.description()}",
                got=f"{len(x)} samples, shape {tuple(x.shape)}",
                fix="give use_domain the counts of the batch, in its order",
            )
        return parts

    def description(self) -> str:
        """Returns the layer's name in its network and its kind, for messages."""
        kind = f"{type(self).__name__} of {', '.join(self.domains)}"
        return f"layer '{self.name}' ({kind})" if self.name else kind

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parts": None}  # a copy is outside the `with` of the original


@contextmanager
def use_domain(model: nn.Module, domain: str | Mapping[str, int]) -> Iterator[None]:
    """Select the domain of the batches inside the `with`.

    Args:
        model: a network with domain-specific layers, or one such layer.
        domain: the name of a domain, for batches of one domain; or the number of samples of each
            domain in a joint batch, in the order of the batch.

    Contexts nest. The former selection is restored on exit, also after an exception.

    Raises:
        DialError: the model has no domain-specific layer, or none with that domain; a count that
            is not a number of samples.

    >>> from dial import DomainAlignment
    >>> layer = DomainAlignment(2).eval()
    >>> with use_domain(layer, "webcam"):
    ...     pass
    Traceback (most recent call last):
    ...
    dial.errors.DialError: wanted one of the domains source, target, got 'webcam'; fix: name one \
of those, or convert the network with that domain among `domains`
    """
    layers = domain_layers(model)
    parts = {domains: _parse(domain, domains) for domains in {m.domains for m in layers.values()}}
    former = [layer._parts for layer in layers.values()]
    try:
        for name, layer in layers.items():
            if not layer.name:
                layer.name = name
            layer._parts = parts[layer.domains]
        yield
    finally:
        for layer, selection in zip(layers.values(), former, strict=True):
            layer._parts = selection


def use_domain_if_any(
    model: nn.Module, domain: str | Mapping[str, int]
) -> AbstractContextManager[None]:
    """`use_domain`, or nothing for a network without domain-specific layers."""
    aligned = any(isinstance(module, DomainSpecific) for module in model.modules())
    return use_domain(model, domain) if aligned else nullcontext()


def domain_layers(model: nn.Module) -> dict[str, DomainSpecific]:
    """Returns the domain-specific layers of a network, by name.

    Raises:
        DialError: there are none.
    """
    layers = {n: m for n, m in model.named_modules() if isinstance(m, DomainSpecific)}
    if not layers:
        raise DialError(
            wanted="a network with DA-layers",
            got=f"a {type(model).__name__} without any",
            fix="call dial.convert(model) first",
        )
    return layers


def _index(domain: str, domains: tuple[str, ...]) -> int:
    if domain not in domains:
        raise DialError(
            wanted=f"one of the domains {', '.join(domains)}",
            got=repr(domain),
            fix="name one of those, or convert the network with that domain among `domains`",
        )
    return domains.index(domain)


def _parse(domain: str | Mapping[str, int], domains: tuple[str, ...]) -> Parts:
    if isinstance(domain, str):
        return ((_index(domain, domains), None),)
    if not domain or any(not isinstance(n, int) or n < 0 for n in domain.values()):
        raise DialError(
            wanted="a domain's name, or how many samples of each domain the batch has",
            got=repr(domain),
            fix='for example {"source": 32, "target": 16}',
        )
    return tuple((_index(name, domains), size) for name, size in domain.items())
