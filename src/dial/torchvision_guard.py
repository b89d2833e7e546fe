"""Let torchvision be imported beside a torch that its compiled operators do not fit.

A torchvision built for CUDA cannot load its operators next to a CPU-only torch, and then even
`import torchvision` dies with `operator torchvision::nms does not exist`, although transforms,
models and timm need none of them. Declaring the schemas of the two operators that torchvision
registers against at import is enough. Nothing is imported or declared before somebody imports
torchvision, and nothing at all where its operators load.
"""

import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMA = "{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[Any] = []  # a library's declarations live as long as the object does


class _BeforeTorchvision:
    """An import hook that runs once, just before torchvision's first import, and finds nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec and spec.submodule_search_locations:
                _declare_missing_operators(Path(spec.submodule_search_locations[0]))


def _declare_missing_operators(torchvision: Path) -> None:
    import torch

    for library in torchvision.glob("_C*"):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
    missing = [name for name in ("nms", "qnms") if not hasattr(torch.ops.torchvision, name)]
    if "nms" in missing:  # healthy builds may well be without qnms
        declarations = torch.library.Library("torchvision", "FRAGMENT")
        for name in missing:
            declarations.define(_SCHEMA.format(name=name))
        _declared.append(declarations)


def install() -> None:
    """Watch for torchvision's first import; does nothing if that has already happened."""
    if "torchvision" not in sys.modules:
        sys.meta_path.insert(0, _BeforeTorchvision())
