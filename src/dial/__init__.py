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
    from dial.backbones import build as build
    from dial.deployment import runs as runs
    from dial.deployment.export import export as export
    from dial.deployment.prediction import evaluate as evaluate
    from dial.deployment.prediction import predict as predict
    from dial.deployment.runs import Run as Run
    from dial.errors import DialError as DialError
    from dial.layers.alignment import DomainAlignment as DomainAlignment
    from dial.layers.calibration import calibrate as calibrate
    from dial.layers.context import use_domain as use_domain
    from dial.layers.conversion import convert as convert
    from dial.layers.folding import fold as fold
    from dial.pipeline import adapt as adapt

__version__ = "0.1.0"

# Name -> module it lives in. Looked up on first use, so that `import dial` (and the command's
# --help) does not wait for torch.
_PUBLIC = {
    "DialError": "errors",
    "DomainAlignment": "layers",
    "Run": "deployment.runs",
    "adapt": "pipeline",
    "build": "backbones",
    "calibrate": "layers",
    "convert": "layers",
    "evaluate": "deployment.prediction",
    "export": "deployment.export",
    "fold": "layers",
    "predict": "deployment.prediction",
    "use_domain": "layers",
}
_MODULES = {
    "backbones": "backbones",
    "losses": "losses",
    "methods": "methods",
    "references": "references",
    "runs": "deployment.runs",
}

__all__ = [*_PUBLIC, *_MODULES]  # noqa: PLE0604 - names, all of them strings


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dial.{_MODULES[name]}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"dial.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'dial' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
