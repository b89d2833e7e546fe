"""Read a network's weights from a file, without running code, and fit them to the network."""

import hashlib
import pickle
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dial.errors import DialError

State = dict[str, Tensor]
_CHECKSUM = re.compile(r"-([0-9a-f]{8,64})\.[a-z]+$")
_SHOWN = 5  # names of each kind in a message
_UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile, ValueError)


def start(
    network: nn.Module,
    weights: str | Path,
    *,
    classifier: str,
    public: Callable[[], Path] | None,
    rename: Callable[[State], State] = dict,
    surplus: Collection[str] = (),
) -> dict[str, Any]:
    """Give a network the weights asked for; what this makes `pretrained` and `new` of a backbone.

    Args:
        network: with random weights.
        weights: `auto` for the public weights, `none` for the random ones, or a file.
        classifier: the name of the layer that may be of other classes than the file's.
        public: finds the file of the public weights; None where there are none.
        rename: from the names in public files to the network's.
        surplus: how names of tensors begin that the network has no use for.

    Raises:
        DialError: weights that cannot be had, read, or fitted.
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
    """A new classifier as in the paper: Gaussian of deviation 0.01, no bias to begin with.

    Larger values (timm's are 0.18 for 31 classes) give logits and gradients on top of pretrained
    features that fine-tuning does not survive.
    """
    for name, parameter in layer.named_parameters():
        if name == "weight":
            nn.init.normal_(parameter, std=0.01)
        else:
            nn.init.zeros_(parameter)


def read(path: Path) -> State:
    """The tensors of a `.pth`, `.pt` or `.safetensors` file, by name.

    Tensors nested under `state_dict` or `model` are found, and the prefix that data-parallel
    training puts before every name is taken off.

    Raises:
        DialError: no such file, another suffix, a checksum in the file's name that is not the
            file's, or contents other than tensors.
    """
    if not path.is_file() or path.suffix not in (".pth", ".pt", ".safetensors"):
        raise DialError(
            wanted="a file of weights, .pth or .safetensors",
            got=f"{path}" + ("" if path.exists() else ", which does not exist"),
            fix="give such a file, 'auto' for the public weights, or 'none' for random ones",
        )
    _check_sum(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        return _tensors(torch.load(path, map_location="cpu", weights_only=True), path)
    except (*_UNREADABLE, _safetensors_error()) as error:
        if isinstance(error, DialError):
            raise
        raise DialError(
            wanted=f"tensors, and nothing that has to be executed, in {path}",
            got=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
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
    """Copy tensors into a network; whether its classifier stayed new.

    That is so where the stored one tells another number of classes apart. Tensors whose names
    begin with one of `surplus` are passed over; counts of batches may be missing.

    Raises:
        DialError: names that are missing, left over, or of another shape, all in one message.
    """
    own = network.state_dict()
    given = {n: t for n, t in state.items() if not n.startswith(tuple(surplus) or "\0")}
    new = _tells_other_classes(given, own, classifier)
    if new:
        own, given = (
            {n: t for n, t in tensors.items() if not n.startswith(f"{classifier}.")}
            for tensors in (own, given)
        )
    missing = [n for n in own if n not in given and not n.endswith("num_batches_tracked")]
    left = [n for n in given if n not in own]
    misshapen = [
        f"{n} {tuple(given[n].shape)} for {tuple(own[n].shape)}"
        for n in own
        if n in given and own[n].shape != given[n].shape
    ]
    kinds = {"missing": missing, "surplus": left, "misshapen": misshapen}
    problems = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items() if names]
    if problems:
        raise DialError(
            wanted=f"in {source} the {len(own)} tensors of {type(network).__name__}",
            got="; ".join(problems),
            fix="give the weights of this backbone, or name the backbone they are of",
        )
    network.load_state_dict(given, strict=False)
    return new


def fetch(url: str, *, backbone: str, name: str = "") -> Path:
    """The file behind an address: from torch's cache, or downloaded into it.

    Raises:
        DialError: no download; the message says which file to get, and where to put it.
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
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(wanted[1]):
        raise DialError(
            wanted=f"a SHA-256 that begins with {wanted[1]}, as the name of {path} says",
            got=f"{found[: len(wanted[1])]}...: the file is damaged, or another one",
            fix="get it again, or rename it without that part if its contents are meant",
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


def _tells_other_classes(
    given: Mapping[str, Tensor], own: Mapping[str, Tensor], classifier: str
) -> bool:
    weight = f"{classifier}.weight"
    return (
        weight in given
        and given[weight].shape[1:] == own[weight].shape[1:]
        and len(given[weight]) != len(own[weight])
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _safetensors_error() -> type[Exception]:
    from safetensors import SafetensorError

    return SafetensorError
