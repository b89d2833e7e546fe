"""Office-Caltech: the 10 classes that Office-31 and Caltech-256 share, four domains (Gong 2012).

<https://doi.org/10.1109/CVPR.2012.6247911>. The three domains of Office-31 are taken from its
folders; Caltech is in `DIR/caltech/<class>/*.jpg` (or `caltech10`, or Caltech-256 as unpacked,
`256_ObjectCategories/<number>.<class>`), with the class names of either data set.
"""

from pathlib import Path

from dial.data.datasets import office31
from dial.data.datasets.interface import DataSet
from dial.data.domain import LabelledDomain
from dial.data.folders import read_folder
from dial.errors import DialError

# Office-31's name of each class, and the names in Caltech-256 and in copies of Office-Caltech.
_CLASSES = {
    "back_pack": ("003.backpack", "backpack"),
    "bike": ("224.touring-bike", "touring-bike", "touring_bike"),
    "calculator": ("027.calculator",),
    "headphones": ("101.head-phones", "head-phones", "headphone", "head_phones"),
    "keyboard": ("045.computer-keyboard", "computer-keyboard", "computer_keyboard"),
    "laptop_computer": ("127.laptop-101", "laptop-101", "laptop", "laptop_101"),
    "monitor": ("046.computer-monitor", "computer-monitor", "computer_monitor"),
    "mouse": ("047.computer-mouse", "computer-mouse", "computer_mouse"),
    "mug": ("041.coffee-mug", "coffee-mug", "coffee_mug"),
    "projector": ("238.video-projector", "video-projector", "video_projector"),
}
_NAMES = {alias: name for name, aliases in _CLASSES.items() for alias in (name, *aliases)}
_HOMES = ("", "office_caltech", "office-caltech", "office_caltech_10", "office31")
_CALTECH = ("caltech", "caltech10", "Caltech10", "caltech256", "256_ObjectCategories")


class OfficeCaltech(DataSet):
    """The images of the ten classes, below the folder `data`."""

    domains = ("amazon", "caltech", "dslr", "webcam")

    def load(self, domain: str, data: Path | None) -> LabelledDomain:
        """Returns one of the four domains."""
        images = read_folder(_find(domain, data), name=f"office_caltech:{domain}").only(_NAMES)
        missing = set(_CLASSES) - set(images.labels.classes)
        if missing:
            raise DialError(
                wanted=f"the {len(_CLASSES)} classes of Office-Caltech in {images.name}",
                got=f"none of {', '.join(sorted(missing))}",
                fix="check that --data DIR (data=) holds the whole data set",
            )
        return images


create = OfficeCaltech


def _find(domain: str, data: Path | None) -> Path:
    folders = _CALTECH if domain == "caltech" else (domain,)
    places = [data / home / folder for home in _HOMES for folder in folders] if data else []
    for place in filter(Path.is_dir, places):
        return place
    if domain != "caltech":
        return office31.find(domain, data)
    raise DialError(
        wanted="Caltech's images in a folder " + " or ".join(_CALTECH),
        got=f"no such folder in {data}" if data else "no folder",
        fix="pass --data DIR (data=), where DIR/caltech and the domains of Office-31 are",
    )
