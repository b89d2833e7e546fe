"""One registry for all kinds of entries: a file each in a package, or an object of one's own."""

import ast
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
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

    """

    def __init__(self, package: str, interface: type[T]) -> None:
        self._package, self._interface = package, interface
        self.kind = package.rpartition(".")[2]

    def names(self) -> tuple[str, ...]:
        """Returns the names of all entries, sorted."""
        found = (module.name for module in pkgutil.iter_modules([str(self._folder())]))
        return tuple(sorted(name for name in found if not name.startswith(("_", "interface"))))

    def describe(self) -> dict[str, str]:
        """Returns a line about each entry, by the name that users type; imports no entry."""
        lines = {}
        for name in self.names():
            tree = ast.parse((self._folder() / f"{name}.py").read_text(encoding="utf-8"))
            shown = f"{name}:NAME" if _is_family(tree) else name
            lines[shown] = (ast.get_docstring(tree) or "").partition("\n")[0]
        return lines

    def factory(self, name: str) -> Callable[..., T]:
        """Returns the `create` of an entry.

        Raises:
            DialError: there is no such entry; the message lists those there are.
        """
        if name not in self.names():
            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"did you mean {close[0]}?" if close else "choose one of those"
            raise DialError(
                wanted=f"one of the {self.kind} {', '.join(self.names())}",
                got=repr(name),
                fix=f"{hint}, or pass an object from Python",
            )
        create: Callable[..., T] = importlib.import_module(f"{self._package}.{name}").create
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
        if colon and (parameter is None or not variant):
            raise DialError(
                wanted=f"one of the {self.kind}, {', '.join(self.describe())}",
                got=repr(entry),
                fix=f"write {name}" + (":NAME" if parameter else ""),
            )
        if parameter is not None and parameter.default is parameter.empty and not colon:
            raise DialError(
                wanted=f"one of the {self.kind} of the family {name}",
                got=repr(entry),
                fix=f"add its name after a colon: {name}:NAME",
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
                got=f"{entry!r}, a class" if not missing else f"{entry!r} without {missing[0]}",
                fix=f"pass an instance of a subclass of {path}",
            )

    def _folder(self) -> Path:
        return Path(str(importlib.import_module(self._package).__file__)).parent


def _is_family(tree: ast.Module) -> bool:
    """Whether `create` needs a variant."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "create":
            arguments = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            return any(a.arg == "variant" and default is None for a, default in arguments)
    return False


def names(package: Any) -> tuple[str, ...]:
    """The entries of a package whose files have not taken on the contract of `Registry` yet."""
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in modules if not name.startswith(("_", "interface"))))


def describe(package: Any) -> dict[str, str]:
    """Every entry with the first line of its module's docstring."""
    docs = {name: load(package, name).__doc__ or "" for name in names(package)}
    return {name: text.partition("\n")[0] for name, text in docs.items()}


def load(package: Any, name: str) -> Any:
    """The module behind an entry's name."""
    if name not in names(package):
        kind = package.__name__.rpartition(".")[2]
        raise DialError(
            wanted=f"one of the {kind} {', '.join(names(package))}",
            got=repr(name),
            fix="choose one of those, or add a file of that name",
        )
    return importlib.import_module(f"{package.__name__}.{name}")
