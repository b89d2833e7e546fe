"""A folder is a registry: a module's name in it is the entry's name on the command line."""

import importlib
import pkgutil
from types import ModuleType

from dial.errors import DialError


def names(package: ModuleType) -> tuple[str, ...]:
    """The entries of a package: its modules, but for the interface and private ones.

    >>> import dial.references
    >>> names(dial.references)
    ('anchored', 'epsilon', 'laplace', 'normal')
    """
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(
        sorted(name for name in modules if not name.startswith("_") and name != "interface")
    )


def describe(package: ModuleType) -> dict[str, str]:
    """Every entry with the first line of its module's docstring."""
    docs = {name: load(package, name).__doc__ or "" for name in names(package)}
    return {name: text.partition("\n")[0] for name, text in docs.items()}


def load(package: ModuleType, name: str) -> ModuleType:
    """The module behind an entry's name.

    Raises:
        DialError: there is no such entry; the message lists those there are.
    """
    if name not in names(package):
        kind = package.__name__.rpartition(".")[2]
        raise DialError(
            wanted=f"one of the {kind} {', '.join(names(package))}",
            got=repr(name),
            fix="choose one of those, or add a file of that name",
        )
    return importlib.import_module(f"{package.__name__}.{name}")
