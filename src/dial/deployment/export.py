"""A finished network in the formats that others read: ONNX, torch.export, safetensors."""

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dial import backbones, files
from dial.deployment import model as models
from dial.deployment.prediction import predict
from dial.deployment.runs import Run
from dial.errors import DialError

TOLERANCE = 1e-4
_IMAGES = 32
_INPUT, _OUTPUT = "images", "logits"


class Exported(NamedTuple):
    """What was written, and the largest difference of its outputs on real images."""

    file: Path
    difference: float
    images: int


class Format(NamedTuple):
    """How a file is made of a network, and how it is read back to be compared."""

    about: str
    write: Callable[[nn.Module, Tensor, dict[str, Any], Path], None]
    read: Callable[[Path, models.Model], Callable[[Tensor], Tensor]]


def export(
    run: Run, file: Path, *, images: list[str] | None = None, data: Path | None = None
) -> Exported:
    """Write a run's network, read it back, and compare the two on real images.

    The network is the backbone's own architecture, with nothing of this package in it; it takes
    `(N, C, H, W)` images, `N` free, and gives logits. Classes and preprocessing stand in the
    file's metadata. The file appears only if it passed the comparison.

    Args:
        run: a finished run.
        file: its suffix decides the format.
        images: what to compare on; images of the run's target, kept with the run, by default.
        data: the folder that holds the known data sets.

    Raises:
        DialError: an unknown suffix, outputs that differ by more than 1e-4, or a full disk.
    """
    chosen = FORMATS.get(file.suffix.lower())
    if chosen is None:
        known = ", ".join(f"{suffix} ({entry.about})" for suffix, entry in FORMATS.items())
        raise DialError(
            wanted=f"a file with one of the suffixes {known}",
            got=str(file),
            fix="name the file FILE.onnx, FILE.pt2 or FILE.safetensors",
        )
    model = run.model
    batch = _batch(run, images, data)
    network = model.original()
    about = model.describe() | {"input": _INPUT, "output": _OUTPUT}
    with tempfile.TemporaryDirectory(prefix="dial-export-") as folder:
        made = Path(folder, f"network{file.suffix.lower()}")
        with warnings.catch_warnings():  # of torch's exporters about themselves
            warnings.simplefilter("ignore")
            chosen.write(network, batch[:2].clone(), about, made)
            loaded = chosen.read(made, model)
        difference = _compare(model.network, loaded, batch, file)
        content = made.read_bytes()
    files.write(file, lambda out: out.write(content))
    return Exported(file, difference, len(batch))


@torch.no_grad()
def _compare(
    network: nn.Module, loaded: Callable[[Tensor], Tensor], batch: Tensor, file: Path
) -> float:
    """The largest difference of the logits, of all images together and of one alone."""
    expected = network.cpu().eval()(batch)
    parts = [loaded(batch) - expected, loaded(batch[:1]) - expected[:1]]
    difference = max(float(part.abs().max()) for part in parts)
    if not difference <= TOLERANCE:
        raise DialError(
            wanted=f"outputs of {file.name} within {TOLERANCE:g} of the network's",
            got=f"a difference of {difference:.3g} on {len(batch)} images; nothing was written",
            fix="try another format, and another version of the library that reads it",
        )
    return difference


def _batch(run: Run, images: list[str] | None, data: Path | None) -> Tensor:
    """Real images as the network takes them."""
    if images is None:
        return run.samples()
    predictions = predict(run, images, data=data)
    batches = (part for domain in predictions.domains for part in predictions.images(domain))
    found = [batch for names, batch in islice(batches, 4) if names]
    if not found:
        raise DialError(
            wanted="images to compare the exported network on",
            got="none that can be read",
            fix="name a folder of images, or leave out --images",
        )
    return torch.cat(found)[:_IMAGES]


def _write_onnx(network: nn.Module, example: Tensor, about: dict[str, Any], path: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    program = torch.onnx.export(
        network,
        (example,),
        dynamo=True,
        input_names=[_INPUT],
        output_names=[_OUTPUT],
        dynamic_shapes=({0: batch},),
        verbose=False,
    )
    assert program is not None  # noqa: S101 - with dynamo it is one
    program.model.metadata_props.update(
        {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in about.items()
        }
    )
    program.save(path, external_data=False)


def _read_onnx(path: Path, model: models.Model) -> Callable[[Tensor], Tensor]:  # noqa: ARG001
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([_OUTPUT], {_INPUT: images.numpy()})[0])


def _write_pt2(network: nn.Module, example: Tensor, about: dict[str, Any], path: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    torch.export.save(program, path, extra_files={"dial.json": json.dumps(about)})


def _read_pt2(path: Path, model: models.Model) -> Callable[[Tensor], Tensor]:  # noqa: ARG001
    return torch.export.load(io.BytesIO(path.read_bytes())).module()


def _write_safetensors(
    network: nn.Module,
    example: Tensor,  # noqa: ARG001
    about: dict[str, Any],
    path: Path,
) -> None:
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    save_file(tensors, path, metadata={key: json.dumps(value) for key, value in about.items()})


def _read_safetensors(path: Path, model: models.Model) -> Callable[[Tensor], Tensor]:
    from safetensors.torch import load

    fresh = backbones.create(model.backbone, num_classes=len(model.classes), weights="none")
    for name in model.append_after:  # a bias appears where what was behind a layer is merged
        layer: Any = fresh.network.get_submodule(name)
        if layer.bias is None:
            layer.bias = nn.Parameter(torch.zeros(len(layer.weight)))
    fresh.network.load_state_dict(load(path.read_bytes()))
    return fresh.network.eval()


FORMATS = {
    ".onnx": Format("for ONNX Runtime and many others", _write_onnx, _read_onnx),
    ".pt2": Format("torch.export", _write_pt2, _read_pt2),
    ".safetensors": Format("a plain state dict", _write_safetensors, _read_safetensors),
}
