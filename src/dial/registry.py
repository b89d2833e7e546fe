"""One registry for all kinds of entries: a file each in a package, or an object of one's own."""

import difflib
import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from dial.errors import DialError

T = TypeVar("T")


class Registry(Generic[T]):
    """The entries of one kind: references, methods, backbones, data sets or validators.

    An entry is a file in the kind's package, and its name is the file's. The file defines
    `create`, which returns the entry; keyword arguments are the kind's own. `name:VARIANT`
    passes `variant="VARIANT"` to a `create` that takes it. The first line of the file's docstring
    describes the entry. `interface.py` and files with a leading underscore are no entries.

    Whatever takes a name also takes an object with the kind's interface.

    Args:
        package: the package's full name.
        interface: the class whose public methods an object must have.
        aliases: the present names of entries, by former ones, which still work with a warning.
    """

    def __init__(
        self, package: str, interface: type[T], *, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._package, self._interface, self._aliases = package, interface, aliases or {}
        self._kind = package.rpartition(".")[2]

    def names(self) -> tuple[str, ...]:
        """Returns the names of all entries, sorted."""
        modules = pkgutil.iter_modules(importlib.import_module(self._package).__path__)
        names = sorted(module.name for module in modules)
        return tuple(name for name in names if not name.startswith(("_", "interface")))

    def describe(self) -> dict[str, str]:
        """Returns a line about each entry, by the name that users type."""
        lines = {}
        for name in self.names():
            variant = inspect.signature(self.factory(name)).parameters.get("variant")
            required = variant is not None and variant.default is variant.empty
            text = importlib.import_module(f"{self._package}.{name}").__doc__ or ""
            lines[f"{name}:NAME" if required else name] = text.partition("\n")[0]
        return lines

    def resolve(self, name: str) -> str:
        """Returns the present name of an entry that has been renamed; any other as it is."""
        return self._aliases.get(name, name)

    def factory(self, name: str) -> Callable[..., T]:
        """Returns the `create` of an entry.

        Raises:
            DialError: there is no such entry; the message lists those there are.
        """
        present = self.resolve(name)
        if present != name:
            warnings.warn(f"{name} is now called {present}", FutureWarning, stacklevel=2)
        if present not in self.names():
            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"did you mean {close[0]}?" if close else "choose one of those"
            raise DialError(
                wanted=f"one of the {self._kind} {', '.join(self.names())}",
                got=repr(name),
                fix=f"{hint}, or pass an object from Python",
            )
        create: Callable[..., T] = importlib.import_module(f"{self._package}.{present}").create
        return create

    def create(self, entry: str | T, **arguments: Any) -> T:
        """Returns the entry of a name, made with these arguments; an object is returned as it is.

        Raises:
            DialError: no such entry, a variant that is missing or not wanted, or an object
                without the interface.
        """
        if not isinstance(entry, str):
            self.check(entry)
            return entry
        name, colon, variant = entry.partition(":")
        factory = self.factory(name)
        parameter = inspect.signature(factory).parameters.get("variant")
        required = parameter is not None and parameter.default is parameter.empty
        if bool(colon) != bool(variant) or (colon and not parameter) or (required and not colon):
            raise DialError(
                wanted=f"one of the {self._kind}, {', '.join(self.describe())}",
                got=repr(entry),
                fix=f"write {name}:NAME" if required else f"write {name}",
            )
        return factory(**arguments, **({"variant": variant} if colon else {}))

    def check(self, entry: object) -> None:
        """Refuse an object that lacks a method of the kind's interface.

        Raises:
            DialError: names what is missing.
        """
        missing = [
            name
            for name, value in vars(self._interface).items()
            if callable(value) and not name.startswith("_") and not hasattr(entry, name)
        ]
        if missing or isinstance(entry, type):
            path = f"{self._package}.{self._interface.__name__}"
            raise DialError(
                wanted=f"a name, or an object with the methods of {path}",
                got=f"{entry!r} without {', '.join(missing)}" if missing else f"{entry!r}, a class",
                fix=f"pass an instance of a subclass of {path}",
            )
