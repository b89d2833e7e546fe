"""DIAL: domain-alignment layers that make a classifier work where there are no labels."""

import importlib
from typing import TYPE_CHECKING, Any

from dial import torchvision_guard

torchvision_guard.install()

if TYPE_CHECKING:
    from dial import backbones as backbones
    from dial import losses as losses
    from dial import methods as methods
    from dial import references as references
    from dial import runs as runs
    from dial.adaptation import adapt as adapt
    from dial.backbones import build as build
    from dial.calibration import calibrate as calibrate
    from dial.conversion import convert as convert
    from dial.domains import use_domain as use_domain
    from dial.errors import DialError as DialError
    from dial.exporting import export as export
    from dial.folding import fold as fold
    from dial.layers import DomainAlignment as DomainAlignment
    from dial.prediction import evaluate as evaluate
    from dial.prediction import predict as predict
    from dial.runs import Run as Run

__version__ = "0.1.0"

# Name -> module it lives in. Looked up on first use, so that `import dial` (and the command's
# --help) does not wait for torch.
_PUBLIC = {
    "DialError": "errors",
    "DomainAlignment": "layers",
    "Run": "runs",
    "adapt": "adaptation",
    "build": "backbones",
    "calibrate": "calibration",
    "convert": "conversion",
    "evaluate": "prediction",
    "export": "exporting",
    "fold": "folding",
    "predict": "prediction",
    "use_domain": "domains",
}
_MODULES = ("backbones", "losses", "methods", "references", "runs")

__all__ = [*_PUBLIC, *_MODULES]  # noqa: PLE0604 - names, all of them strings


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dial.{name}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"dial.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'dial' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
