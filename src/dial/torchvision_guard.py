"""Make torchvision importable beside a torch that its compiled operators do not fit.

A torchvision built for CUDA cannot load its operators next to a CPU-only torch. Then even
`import torchvision` fails with `operator torchvision::nms does not exist`, although transforms,
models and timm use none of them. It is enough to declare the two operators for which torchvision
registers implementations at import.
"""

import importlib.machinery
import sys
from pathlib import Path
from typing import Any

_SCHEMA = "{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declarations: list[Any] = []  # operators exist as long as the object that declares them


def prepare_torchvision() -> None:
    """Declare the operators that torchvision lacks; call it right before importing it or timm.

    Does nothing where torchvision is absent, already imported, or loads its operators.
    """
    if _declarations or "torchvision" in sys.modules:
        return
    spec = importlib.machinery.PathFinder.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    import torch

    for library in Path(spec.submodule_search_locations[0]).glob("_C*"):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
    missing = [name for name in ("nms", "qnms") if not hasattr(torch.ops.torchvision, name)]
    if "nms" in missing:  # intact builds may lack qnms
        declarations = torch.library.Library("torchvision", "FRAGMENT")
        for name in missing:
            declarations.define(_SCHEMA.format(name=name))
        _declarations.append(declarations)
