"""DIAL: domain-alignment layers that make a classifier work where there are no labels."""

import importlib
from typing import TYPE_CHECKING, Any

from dial import torchvision_guard

torchvision_guard.install()

if TYPE_CHECKING:
    from dial.errors import DialError as DialError

__version__ = "0.1.0"

# Name -> module it lives in. Looked up on first use, so that `import dial` (and the command's
# --help) does not wait for torch.
_PUBLIC = {
    "DialError": "errors",
}
_MODULES = ("references",)

__all__ = [*_PUBLIC, *_MODULES]  # noqa: PLE0604 - names, all of them strings


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dial.{name}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"dial.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'dial' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
