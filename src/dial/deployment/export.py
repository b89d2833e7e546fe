"""A finished network in formats that other software reads: ONNX, torch.export, safetensors."""

import copy
import io
import json
import os
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from dial import files
from dial.deployment import model as models
from dial.deployment.prediction import predict
from dial.deployment.runs import Run
from dial.deployment.runtime import TOLERANCE
from dial.errors import DialError, missing_extra

_IMAGES = 32
_INPUT, _OUTPUT = "images", "logits"


class Exported(NamedTuple):
    """What was written, and the largest difference of its outputs on real images."""

    file: Path
    difference: float
    images: int


class Format(NamedTuple):
    """How a network is written, and how it is read back for the comparison.

    All in memory, so that nothing lies about if the process is killed.
    """

    about: str
    write: Callable[[nn.Module, Tensor, dict[str, Any]], bytes]
    read: Callable[[bytes, nn.Module], Callable[[Tensor], Tensor]]


def export(
    run: Run,
    file: str | os.PathLike[str],
    *,
    images: list[str] | None = None,
    data: str | os.PathLike[str] | None = None,
) -> Exported:
    """Write a run's network, read it back, and compare the two on real images.

    The network has the backbone's own architecture and needs nothing of this package. It maps
    images `(N, C, H, W)`, with any `N`, to logits `(N, K)`. The file's metadata holds classes and
    preprocessing. The file is written only if it passes the comparison.

    Args:
        run: a finished run.
        file: its suffix decides the format.
        images: what to compare on; by default images of the target that are kept with the run.
        data: the folder that holds the known data sets.

    Raises:
        DialError: an unknown suffix, outputs that differ by more than 1e-4, a package that is not
            installed, or a full disk.
    """
    file = Path(file)
    form = FORMATS.get(file.suffix.lower())
    if form is None:
        suffixes = ", ".join(f"{suffix} ({entry.about})" for suffix, entry in FORMATS.items())
        raise DialError(
            wanted=f"a file with one of the suffixes {suffixes}",
            got=str(file),
            fix="name the file FILE.onnx, FILE.pt2 or FILE.safetensors",
        )
    model = run.model
    batch = images_of(run, images, data)
    network = model.network.cpu().eval()
    about = model.describe() | {"input": _INPUT, "output": _OUTPUT}
    with warnings.catch_warnings():  # of torch's exporters about themselves
        warnings.simplefilter("ignore")
        # Files keep the example that a network is traced with: no image of anybody's.
        content = form.write(network, torch.zeros_like(batch[:2]), about)
        loaded = form.read(content, network)
    difference = compare(network, loaded, batch, file)
    files.write_bytes(file, content)
    return Exported(file, difference, len(batch))


@torch.no_grad()
def compare(
    network: nn.Module, loaded: Callable[[Tensor], Tensor], batch: Tensor, file: Path
) -> float:
    """The largest difference of the logits, of all images in one batch and of one alone."""
    expected = network(batch)
    parts = [loaded(batch) - expected, loaded(batch[:1]) - expected[:1]]
    difference = max(float(part.abs().max()) for part in parts)
    if not difference <= TOLERANCE:
        raise DialError(
            wanted=f"outputs of {file.name} within {TOLERANCE:g} of the network's",
            got=f"a difference of {difference:.3g} on {len(batch)} images; nothing was written",
            fix="try another format, and another version of the library that reads it",
        )
    return difference


def images_of(run: Run, images: list[str] | None, data: str | os.PathLike[str] | None) -> Tensor:
    """Real images as the network's input."""
    if images is None:
        return run.samples()
    predictions = predict(run, images, data=data)
    batches = (part for domain in predictions.domains for part in predictions.images(domain))
    readable = [batch for names, batch in islice(batches, 4) if names]
    if not readable:
        raise DialError(
            wanted="images to compare the exported network on",
            got="none that can be read",
            fix="name a folder of images, or leave out --images",
        )
    return torch.cat(readable)[:_IMAGES]


def _write_onnx(network: nn.Module, example: Tensor, about: dict[str, Any]) -> bytes:
    try:  # what torch's exporter needs, and what reads the file back
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass
    except ImportError as error:
        raise missing_extra(error, "export") from error
    batch = torch.export.Dim("batch", min=1)
    program: Any = torch.onnx.export(
        network,
        (example,),
        dynamo=True,
        input_names=[_INPUT],
        output_names=[_OUTPUT],
        dynamic_shapes=({0: batch},),
        verbose=False,
    )
    ClearMetadataAndDocStringPass()(program.model)  # stack traces, with paths of this machine
    program.model.metadata_props.update(
        {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in about.items()
        }
    )
    content: bytes = program.model_proto.SerializeToString()
    return content


def _read_onnx(content: bytes, network: nn.Module) -> Callable[[Tensor], Tensor]:  # noqa: ARG001
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([_OUTPUT], {_INPUT: images.numpy()})[0])


def _write_pt2(network: nn.Module, example: Tensor, about: dict[str, Any]) -> bytes:
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # it has paths of this machine
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"dial.json": json.dumps(about)})
    return content.getvalue()


def _read_pt2(content: bytes, network: nn.Module) -> Callable[[Tensor], Tensor]:  # noqa: ARG001
    return torch.export.load(io.BytesIO(content)).module()


def _write_safetensors(
    network: nn.Module,
    example: Tensor,  # noqa: ARG001
    about: dict[str, Any],
) -> bytes:
    from safetensors.torch import save

    metadata = {key: json.dumps(value) for key, value in about.items()}
    return save(models.state(network), metadata=metadata)


def _read_safetensors(content: bytes, network: nn.Module) -> Callable[[Tensor], Tensor]:
    from safetensors.torch import load

    fresh = copy.deepcopy(network)
    fresh.load_state_dict(load(content))
    return fresh


FORMATS = {
    ".onnx": Format("for ONNX Runtime and many others", _write_onnx, _read_onnx),
    ".pt2": Format("torch.export", _write_pt2, _read_pt2),
    ".safetensors": Format("a plain state dict", _write_safetensors, _read_safetensors),
}
