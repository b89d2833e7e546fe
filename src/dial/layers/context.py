"""Which domain, or domains, a batch belongs to: told to a whole network, once a batch."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from dial.errors import DialError

Parts = tuple[tuple[int, int | None], ...]
"""Consecutive runs of a batch: the index of a domain and how many samples, None for all."""


class _Selection:
    """What the next batch of a layer holds; None is the last domain alone."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: Parts | None = None

    def __reduce__(self) -> tuple[type["_Selection"], tuple[()]]:
        return _Selection, ()  # a copy of a layer is not inside the `with` of the original


# Counts what may have changed the layers of some network, so that `use_domain` knows when the
# ones it found at an earlier call may be out of date.
_changes = itertools.count()
_latest_change = next(_changes)


def _note_change(*_: object) -> None:
    global _latest_change  # noqa: PLW0603 - one count for the process
    _latest_change = next(_changes)


register_module_module_registration_hook(_note_change)


class DomainSpecific(nn.Module):
    """A layer that treats each of its domains in its own way, as `use_domain` tells it.

    Args:
        domains: the domains' names, in any number; the last is in use outside `use_domain`.

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
        self._selection = _Selection()
        _note_change()

    def index_of(self, domain: str) -> int:
        """The position of a domain among this layer's.

        Raises:
            DialError: the layer does not know the domain.
        """
        return _index(domain, self.domains)

    def parts(self, x: Tensor) -> list[tuple[int, int]]:
        """The runs of this batch that are not empty: index of the domain, number of samples.

        Raises:
            DialError: the counts do not add up to the batch.
        """
        selected = self._selection.parts or ((len(self.domains) - 1, None),)
        parts = [(index, len(x) if size is None else size) for index, size in selected]
        if sum(size for _, size in parts) != len(x):
            counts = {self.domains[index]: size for index, size in parts}
            raise DialError(
                wanted=f"a joint batch of {sum(counts.values())} samples ({counts}) in "
                f"{self.described()}",
                got=f"{len(x)} samples, shape {tuple(x.shape)}",
                fix="give use_domain the counts of the batch, in its order",
            )
        return [(index, size) for index, size in parts if size]

    def described(self) -> str:
        """The layer's name in its network and its kind, for messages."""
        kind = f"{type(self).__name__} of {', '.join(self.domains)}"
        return f"layer '{self.name}' ({kind})" if self.name else kind

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _note_change()


@contextmanager
def use_domain(model: nn.Module, domain: str | Mapping[str, int]) -> Iterator[None]:
    """Say what the batches inside the `with` hold.

    Args:
        model: a network with domain-specific layers, or one such layer.
        domain: a domain's name, for batches of one domain; or the number of samples of each, in
            the order in which they follow each other in a joint batch.

    Contexts nest; the former choice is restored on leaving, also by an exception.

    Raises:
        DialError: the model has no domain-specific layer, or none of that domain's name; a
            count that is not a number of samples.

    >>> from dial.layers.alignment import DomainAlignment
    >>> layer = DomainAlignment(2).eval()
    >>> with use_domain(layer, "webcam"):
    ...     pass
    Traceback (most recent call last):
    ...
    dial.errors.DialError: wanted one of the domains source, target, got 'webcam'; fix: name one \
of those, or convert the network with that domain among `domains`
    """
    selections = _selections(model)
    chosen = {domains: _parse(domain, domains) for _, domains in selections}
    former = [selection.parts for selection, _ in selections]
    try:
        for selection, domains in selections:
            selection.parts = chosen[domains]
        yield
    finally:
        for (selection, _), parts in zip(selections, former, strict=True):
            selection.parts = parts


def use_domain_if_any(
    model: nn.Module, domain: str | Mapping[str, int]
) -> AbstractContextManager[None]:
    """`use_domain`, which is nothing for a network without domain-specific layers."""
    aligned = any(isinstance(module, DomainSpecific) for module in model.modules())
    return use_domain(model, domain) if aligned else nullcontext()


def domain_layers(model: nn.Module) -> dict[str, DomainSpecific]:
    """The domain-specific layers of a network, by their names in it."""
    found = {n: m for n, m in model.named_modules() if isinstance(m, DomainSpecific)}
    if not found:
        raise DialError(
            wanted="a network with DA-layers",
            got=f"a {type(model).__name__} without any",
            fix="call dial.convert(model) first",
        )
    return found


# Selections, not layers: the values must not keep the keys alive.
_known: WeakKeyDictionary[nn.Module, tuple[int, list[tuple[_Selection, tuple[str, ...]]]]]
_known = WeakKeyDictionary()


def _selections(model: nn.Module) -> list[tuple[_Selection, tuple[str, ...]]]:
    """Selection and domains of each layer; the network is walked only when it may be new."""
    change, found = _known.get(model, (-1, []))
    if change != _latest_change:
        layers = domain_layers(model)
        for name, layer in layers.items():
            layer.name = layer.name or name
        found = [(layer._selection, layer.domains) for layer in layers.values()]
        _known[model] = _latest_change, found
    return found


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
