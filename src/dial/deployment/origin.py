"""The finished model that a run without source images starts from."""

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from dial import backbones
from dial.backbones import Backbone
from dial.data.transforms import Preprocessing
from dial.deployment import memory, runs
from dial.deployment import model as models
from dial.deployment import pretrained as pretrained_networks
from dial.deployment.pretrained import digest_tensors
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.files import expand_home, printable
from dial.methods import Prototypes
from dial.training import run_folder

Start = str | os.PathLike[str] | Run | nn.Module | Backbone
"""What a run can start from: a run or its folder, a file of weights, or a network."""


@dataclass(frozen=True)
class Origin:
    """A finished model to go on from, and what is known of the source that it was trained on."""

    name: str
    backbone: Backbone
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    prototypes: Prototypes | None
    place: str | None
    """The path that it was opened from; None for an object."""
    weights: str = "none"
    """Those that the model was trained from."""
    pretrained: Backbone | None = None
    """The network with these weights, if they are at hand."""

    @property
    def digest(self) -> str:
        """A hash of all that a run depends on: tensors, classes, preprocessing, prototypes."""
        about = [*self.classes, repr(self.preprocessing)]
        if self.pretrained is not None:
            about.append(pretrained_networks.digest(self.pretrained))
        tensors = models.state(self.backbone.network)
        if self.prototypes is not None:
            parts = self.prototypes._asdict()
            tensors |= {name: part.clone() for name, part in parts.items() if part is not None}
        return digest_tensors(tensors, about="\n".join(about))

    def describe(self) -> dict[str, Any]:
        """Returns what config.json says about it."""
        return {"name": self.name, "classes": self.classes, "digest": self.digest}


def open_origin(
    start: Start,
    *,
    classes: str | os.PathLike[str] | Sequence[str] | None = None,
    backbone: str | Backbone | nn.Module | None = None,
    image_size: int | None = None,
) -> Origin:
    """Returns the model to go on from.

    Args:
        start: a finished run, or its folder; a file of weights, for which `backbone` and `classes`
            say what they are; or a network with a classifier for `classes`.
        classes: names in the order of the classifier's outputs, or a text file with one on a line.
        backbone: the network of a file of weights; or that of a run whose network was an object.
        image_size: of a network that is not from a run; by default the backbone's.

    Raises:
        DialError: no such run or file, classes that do not fit, or a network without them.
    """
    if isinstance(start, nn.Module | Backbone):
        return _of_network(start, classes=read_classes(classes), image_size=image_size)
    if isinstance(start, Run):
        own = backbones.is_object(start.model.backbone)
        backbone, start = start.network if own else backbone, start.folder
    path = expand_home(start)
    if path.is_dir():
        return _of_run(path, classes=classes, backbone=backbone, image_size=image_size)
    return _of_file(path, classes=classes, backbone=backbone, image_size=image_size)


def _of_run(
    folder: Path,
    *,
    classes: Any,
    backbone: str | Backbone | nn.Module | None,
    image_size: int | None,
) -> Origin:
    result, _ = runs.read_records(folder)
    if "targets" in result:
        names = [*result["targets"]]
        raise DialError(
            wanted=f"one of the targets {', '.join(names)} of the run in {folder}",
            got="none named",
            fix=f"go on from its folder: --from {folder / names[0]}",
        )
    network = None if isinstance(backbone, str) else backbone
    model, entry = models.load_backbone(folder / "model.safetensors", backbone=network)
    given = read_classes(classes)
    differences = {
        "backbone": (model.backbone, backbone if isinstance(backbone, str) else None),
        "image size": (model.preprocessing.size, image_size),
        "classes": (model.classes, given),
    }
    for name, (own, asked) in differences.items():
        if asked is not None and asked != own:
            shown = own if name != "classes" else f"{len(model.classes)} of them"
            raise DialError(
                wanted=f"the {name} of the run in {folder} ({shown})",
                got="others" if name == "classes" else repr(asked),
                fix=f"leave --{name.replace(' ', '-')} out: a finished model has its own",
            )
    weights = str(run_folder.read_config(folder / "config.json")["settings"]["weights"])
    pretrained = pretrained_networks.find(model, weights)
    prototypes = None
    if (folder / memory.NAME).exists():
        prototypes, *_, known = memory.load(folder, model)
        if prototypes and (pretrained is None or pretrained_networks.digest(pretrained) != known):
            pretrained, prototypes = None, prototypes._replace(pretrained=None)
    entry = replace(entry, network=model.network)
    origin = _origin(printable(folder), entry, model, prototypes, str(folder.resolve()))
    return replace(origin, weights=weights, pretrained=pretrained)


def _of_file(path: Path, *, classes: Any, backbone: Any, image_size: int | None) -> Origin:
    if not path.is_file():
        raise DialError(
            wanted="a finished run, or a file of weights, to go on from",
            got=f"{path}, which does not exist",
            fix="check the path",
        )
    if backbone is None or classes is None:
        missing = [n for n, v in (("--backbone", backbone), ("--classes", classes)) if v is None]
        raise DialError(
            wanted=f"the network and the classes of the weights in {path}",
            got=f"no {' and no '.join(missing)}",
            fix=f"dial adapt --from {path} --backbone NAME --classes FILE.txt TARGET --out RUN",
        )
    names = read_classes(classes) or ()
    entry = backbones.create(backbone, num_classes=len(names), weights=path, image_size=image_size)
    if entry.new:
        raise DialError(
            wanted=f"in {path} a classifier for the {len(names)} classes of --classes",
            got="one with another number of outputs",
            fix="name the classes that the model was trained for, in the order of its outputs",
        )
    return _of_entry(entry, names, image_size, name=printable(path), place=str(path.resolve()))


def _of_network(
    network: nn.Module | Backbone, *, classes: tuple[str, ...] | None, image_size: int | None
) -> Origin:
    if classes is None:
        raise DialError(
            wanted="the names of the classes of the model, in the order of its outputs",
            got="none",
            fix="dial.adapt(model=network, classes=[...], target=...)",
        )
    entry = backbones.create(network, num_classes=len(classes), image_size=image_size)
    return _of_entry(entry, classes, image_size, name=entry.name, place=None)


def _of_entry(
    entry: Backbone, classes: tuple[str, ...], image_size: int | None, **about: Any
) -> Origin:
    preprocessing = Preprocessing.for_network(entry, image_size)
    model = models.Model(entry.network, classes, preprocessing, entry.name)
    return _origin(about["name"], entry, model, None, about["place"])


def _origin(
    name: str, entry: Backbone, model: models.Model, prototypes: Any, place: str | None
) -> Origin:
    """The network is trained already, and gets no DA-layers but for its BatchNorms."""
    entry = replace(entry, pretrained=True, new=(), append_after=(), insert_before=(), sources=())
    return Origin(name, entry, model.classes, model.preprocessing, prototypes, place)


def read_classes(
    classes: str | os.PathLike[str] | Sequence[str] | None,
) -> tuple[str, ...] | None:
    """Returns the names of classes, from a list or from a text file with one on a line.

    Raises:
        DialError: a file that cannot be read, fewer than two names, or one that is there twice.
    """
    if classes is None:
        return None
    place = "the list of classes"
    if isinstance(classes, str | os.PathLike):
        place = os.fspath(classes)
        try:
            text = expand_home(classes).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise DialError(
                wanted=f"a text file with the name of a class on each line at {place}",
                got=str(error),
                fix="write the names in the order of the model's outputs",
            ) from error
        classes = [line.strip() for line in text.splitlines() if line.strip()]
    # The same letter can be one code point or two (macOS); to a user it is one name.
    names = tuple(unicodedata.normalize("NFC", str(name)) for name in classes)
    twice = sorted({name for name in names if names.count(name) > 1})
    if len(names) < 2 or twice:  # noqa: PLR2004 - the least that can be classified
        raise DialError(
            wanted=f"two different classes or more in {place}",
            got=f"{', '.join(twice)} twice" if twice else f"{len(names)}",
            fix="write every class once, in the order of the model's outputs",
        )
    return names
