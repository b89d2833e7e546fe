"""A finished network as a folder that timm and the Hugging Face hub take as it is."""

import copy
import math
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from dial import files
from dial.data.transforms import Preprocessing
from dial.deployment.export import Exported, compare, images_of
from dial.deployment.model import Model
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.torchvision_guard import prepare_torchvision
from dial.training.run_folder import holds_run

_KEPT = ("architecture", "classifier", "first_conv", "fixed_input_size", "global_pool")
"""What timm's configuration says about the architecture; the rest is about timm's weights."""
WEIGHTS = "model.safetensors"
_FILES = WEIGHTS, "config.json"


def export_folder(
    run: Run,
    folder: Path,
    *,
    card: str,
    images: list[str] | None = None,
    data: Path | None = None,
) -> Exported:
    """Write a run's network as timm has it, load it by timm, and compare on real images.

    `timm.create_model("local-dir:FOLDER", pretrained=True)` loads the folder, and
    `"hf-hub:OWNER/NAME"` what was uploaded from it. Files are written only if the network that
    comes back passes the comparison.

    Args:
        run: a finished run with a network of timm.
        folder: where `config.json`, `model.safetensors` and `README.md` go.
        card: the text of `README.md`.
        images: what to compare on; by default images of the target that are kept with the run.
        data: the folder that holds the known data sets.

    Raises:
        DialError: a network that is not timm's or that adaptation changed, outputs that differ by
            more than 1e-4, the folder of a run, or a full disk.
    """
    _check_architecture(run.model)
    if holds_run(folder):
        raise DialError(
            wanted="a folder of its own for the hub",
            got=f"{folder}, which holds a run",
            fix="name another folder",
        )
    batch = images_of(run, images, data)
    network = run.network.cpu().eval()
    with tempfile.TemporaryDirectory(prefix="dial-export-") as temporary:
        _write(run.model, Path(temporary))
        loaded = _load(Path(temporary), run.model)
        difference = compare(network, loaded, batch, folder)
        for name in _FILES:
            files.copy(Path(temporary, name), folder / name)
    files.write_text(folder / "README.md", card)
    return Exported(folder, difference, len(batch))


def _check_architecture(model: Model) -> None:
    """Refuse a network that timm cannot build by a name."""
    configuration = getattr(model.network, "pretrained_cfg", None) or {}
    if "architecture" not in configuration:
        raise DialError(
            wanted="a network of timm, such as timm:NAME or efficientnet_lite0, for --hub-folder",
            got=model.backbone,
            fix="write FILE.onnx, FILE.pt2 or FILE.safetensors instead",
        )


def _write(model: Model, folder: Path) -> None:
    from timm.models import save_for_hf

    described: Any = copy.copy(model.network)  # which has the same tensors
    configuration = described.pretrained_cfg
    kept = {name: configuration[name] for name in _KEPT if name in configuration}
    described.pretrained_cfg = kept | input_of(model.preprocessing)
    about = {"num_classes": len(model.classes), "label_names": [*model.classes]}
    save_for_hf(described, folder, model_config=about, safe_serialization=True)


def input_of(preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns what timm makes its transform of.

    >>> input_of(Preprocessing(size=160))["crop_pct"]  # of 183 pixels
    0.8743169398907104
    """
    size, resize = preprocessing.size, preprocessing.resize
    ratio = size / resize
    if math.floor(size / ratio) < resize:  # as timm finds the size before the crop
        ratio = math.nextafter(ratio, 0)
    return {
        "input_size": [preprocessing.channels, size, size],
        "mean": [*preprocessing.mean],
        "std": [*preprocessing.std],
        "interpolation": "bilinear",
        "crop_pct": ratio,
        "crop_mode": "squash",
    }


def _load(folder: Path, model: Model) -> nn.Module:
    """Returns the network that timm makes of a folder."""
    prepare_torchvision()
    import timm

    try:
        network: nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
    except Exception as error:  # whatever timm raises about tensors that are not its own
        raise DialError(
            wanted=f"a network that is timm's {model.backbone.removeprefix('timm:')} without "
            "changes, for --hub-folder",
            got=f"one that timm cannot load ({' '.join(str(error).split())[:200]})",
            fix="write FILE.onnx or FILE.pt2 instead, or adapt without --append-after and with "
            "another reference than whitened",
        ) from error
    return network.eval()
