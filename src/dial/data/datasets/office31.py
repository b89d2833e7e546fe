"""Office-31: 31 classes of office objects, from a shop, a camera and a webcam (Saenko 2010).

<https://doi.org/10.1007/978-3-642-15561-1_16>. On disk: `DIR/amazon/images/<class>/*.jpg` or
`DIR/amazon/<class>/*.jpg`, where `DIR` is the folder given or a folder `office31` in it.
"""

from pathlib import Path

from dial.data.datasets.interface import DataSet
from dial.data.domain import Domain
from dial.data.folders import read_folder
from dial.errors import DialError

_FOLDERS = ("", "office31", "office-31", "Office31", "Office-31", "office")


class Office31(DataSet):
    """The three domains, below the folder `data`."""

    domains = ("amazon", "dslr", "webcam")

    def load(self, domain: str, data: Path | None) -> Domain:
        """Returns one of the three domains."""
        return read_folder(find(domain, data), name=f"office31:{domain}")


create = Office31


def find(domain: str, data: Path | None) -> Path:
    """Returns the folder of a domain."""
    wanted, got = f"the folder that holds Office-31's {domain}", "none"
    if data is not None:
        places = [data / folder / domain for folder in _FOLDERS]
        for place in filter(Path.is_dir, places):
            return place
        wanted, got = f"Office-31's {domain} in {places[0]} or {places[1]}", "no such folder"
    fix = "pass --data DIR (data=), where DIR/amazon, DIR/dslr and DIR/webcam are"
    raise DialError(wanted=wanted, got=got, fix=fix)
