"""Read a network's weights from a file, without running code, and fit them to the network."""

import hashlib
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dial.errors import DialError

State = dict[str, Tensor]
_CHECKSUM = re.compile(r"-([0-9a-f]{8,64})\.[a-z]+$")
_SHOWN = 5  # names of each kind in a message


def start(
    network: nn.Module,
    weights: str | Path,
    *,
    classifier: str,
    public: Callable[[], Path] | None,
    rename: Callable[[State], State] = dict,
    surplus: Collection[str] = (),
) -> dict[str, Any]:
    """Load the weights asked for into a network.

    Args:
        network: with random weights.
        weights: `auto` for the public weights, `none` for the random ones, or a file.
        classifier: the name of the layer that may be of other classes than the file's.
        public: finds the file of the public weights; None where there are none.
        rename: from the names in public files to the network's.
        surplus: prefixes of tensors that the network has no use for.

    Returns:
        The fields `pretrained` and `new` of the backbone.

    Raises:
        DialError: the weights are not available, cannot be read, or do not fit.
    """
    if str(weights) == "auto":
        path = public() if public else None
    else:
        path = None if str(weights) == "none" else Path(weights)
    if path is None:
        return {"pretrained": False, "new": ()}
    state = rename(read(path))
    new = load(network, state, classifier=classifier, source=path.name, surplus=surplus)
    if new:
        _start_small(network.get_submodule(classifier))
    return {"pretrained": True, "new": (classifier,) if new else ()}


def _start_small(layer: nn.Module) -> None:
    """Initialize a new classifier as in the paper: Gaussian with deviation 0.01, bias 0.

    With larger values (timm's are 0.18 for 31 classes) the logits and gradients on top of
    pretrained features are so large that fine-tuning fails.
    """
    for name, parameter in layer.named_parameters():
        if name == "weight":
            nn.init.normal_(parameter, std=0.01)
        else:
            nn.init.zeros_(parameter)


def read(path: Path) -> State:
    """Returns the tensors of a `.pth`, `.pt` or `.safetensors` file, by name.

    Tensors may be nested under `state_dict` or `model`. The prefix `module.` of data-parallel
    training is removed.

    Raises:
        DialError: no such file, another suffix, a file that is not the one of the checksum in its
            name, or contents other than tensors.
    """
    if not path.is_file() or path.suffix not in (".pth", ".pt", ".safetensors"):
        raise DialError(
            wanted="a file of weights, .pth or .safetensors",
            got=f"{path}" + ("" if path.exists() else ", which does not exist"),
            fix="give such a file, 'auto' for the public weights, or 'none' for random ones",
        )
    try:
        _check_sum(path)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        with warnings.catch_warnings():  # about pickle protocols that damaged files pretend to
            warnings.simplefilter("ignore")
            return _tensors(torch.load(path, map_location="cpu", weights_only=True), path)
    except DialError:
        raise
    except Exception as error:  # torch raises whatever its reader trips over in a damaged file
        lines = str(error).strip().splitlines()
        raise DialError(
            wanted=f"tensors, and nothing that has to be executed, in {path}",
            got=f"{type(error).__name__}: {lines[0] if lines else 'a damaged file'}",
            fix="get the file again, or save the network's state_dict() alone",
        ) from error


def load(
    network: nn.Module,
    state: Mapping[str, Tensor],
    *,
    classifier: str,
    source: str,
    surplus: Collection[str] = (),
) -> bool:
    """Copy tensors into a network.

    Tensors whose names begin with one of `surplus` are skipped. `num_batches_tracked` may be
    missing.

    Returns:
        Whether the classifier stayed new because the stored one has another number of classes.

    Raises:
        DialError: tensors that are missing, left over, or of another shape, all in one message.
    """
    wanted = network.state_dict()
    stored = {n: t for n, t in state.items() if not n.startswith(tuple(surplus) or "\0")}
    new = _has_other_classes(stored, wanted, classifier)
    if new:
        wanted, stored = (
            {n: t for n, t in tensors.items() if not n.startswith(f"{classifier}.")}
            for tensors in (wanted, stored)
        )
    missing = [n for n in wanted if n not in stored and not n.endswith("num_batches_tracked")]
    left = [n for n in stored if n not in wanted]
    misshapen = [
        f"{n} {tuple(stored[n].shape)} for {tuple(wanted[n].shape)}"
        for n in wanted
        if n in stored and wanted[n].shape != stored[n].shape
    ]
    kinds = {"missing": missing, "surplus": left, "misshapen": misshapen}
    problems = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items() if names]
    if problems:
        raise DialError(
            wanted=f"in {source} the {len(wanted)} tensors of {type(network).__name__}",
            got="; ".join(problems),
            fix="give the weights of this backbone, or name the backbone that they belong to",
        )
    network.load_state_dict(stored, strict=False)
    return new


def fetch(url: str, *, backbone: str, name: str = "") -> Path:
    """Returns the file of an address: from torch's cache, or downloaded into it.

    Raises:
        DialError: the download failed; the message says which file to get and where to put it.
    """
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / (name or url.rpartition("/")[2])
    if path.is_file():
        return path
    checksum = _CHECKSUM.search(path.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), checksum and checksum[1], progress=False)
    except (OSError, RuntimeError) as error:
        raise DialError(
            wanted=f"the public weights of {backbone}, {path.name}",
            got=f"no download ({error})",
            fix=f"get {url} on another machine and put it at {path}, or pass it with "
            f"--weights FILE; --weights none starts from random weights",
        ) from error
    return path


def _check_sum(path: Path) -> None:
    wanted = _CHECKSUM.search(path.name)
    if wanted is None:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not digest.startswith(wanted[1]):
        raise DialError(
            wanted=f"a SHA-256 that begins with {wanted[1]}, as the name of {path} says",
            got=f"{digest[: len(wanted[1])]}...: the file is damaged, or another one",
            fix="get it again, or rename it without that part to use it as it is",
        )


def _tensors(content: Any, path: Path) -> State:
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(tensor, Tensor) for tensor in content.values()
    ):
        raise DialError(
            wanted=f"tensors by name in {path}",
            got=f"a {type(content).__name__} of other things",
            fix="save the network's state_dict()",
        )
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def _has_other_classes(
    stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor], classifier: str
) -> bool:
    weight = f"{classifier}.weight"
    return (
        weight in stored
        and stored[weight].shape[1:] == wanted[weight].shape[1:]
        and len(stored[weight]) != len(wanted[weight])
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
