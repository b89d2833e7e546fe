"""DIAL: domain-alignment layers that make a classifier work where there are no labels."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dial import backbones as backbones
    from dial import losses as losses
    from dial import methods as methods
    from dial import references as references
    from dial import sklearn as sklearn
    from dial.backbones import build as build
    from dial.deployment import runs as runs
    from dial.deployment.export import export as export
    from dial.deployment.prediction import evaluate as evaluate
    from dial.deployment.prediction import predict as predict
    from dial.deployment.runs import Run as Run
    from dial.errors import DialError as DialError
    from dial.layers import DomainAlignment as DomainAlignment
    from dial.layers import calibrate as calibrate
    from dial.layers import convert as convert
    from dial.layers import fold as fold
    from dial.layers import use_domain as use_domain
    from dial.pipeline import adapt as adapt
    from dial.reporting.label import label as label
    from dial.reporting.report import report as report

__version__ = "0.2.0"

# Where each public name lives, and the extra that it needs. They are imported on first use, so
# that `import dial` and the command's --help do not wait for torch.
_FUNCTIONS = {
    "DialError": ("errors", ""),
    "DomainAlignment": ("layers", ""),
    "Run": ("deployment.runs", "command"),
    "adapt": ("pipeline", "command"),
    "build": ("backbones", "backbones"),
    "calibrate": ("layers", ""),
    "convert": ("layers", ""),
    "evaluate": ("deployment.prediction", "command"),
    "export": ("deployment.export", "command"),
    "fold": ("layers", ""),
    "label": ("reporting.label", "command"),
    "predict": ("deployment.prediction", "command"),
    "report": ("reporting.report", "report"),
    "use_domain": ("layers", ""),
}
_MODULES = {
    "backbones": ("backbones", "backbones"),
    "losses": ("losses", ""),
    "methods": ("methods", "command"),
    "references": ("references", ""),
    "runs": ("deployment.runs", "command"),
    "sklearn": ("sklearn", "sklearn"),
}

__all__ = [*_FUNCTIONS, *_MODULES]  # noqa: PLE0604 - names, all of them strings


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dial' has no attribute {name!r}")
    place, extra = (_FUNCTIONS | _MODULES)[name]
    try:
        module = importlib.import_module(f"dial.{place}")
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("dial"):
            raise
        from dial.errors import missing_extra

        raise missing_extra(error, extra) from error
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
