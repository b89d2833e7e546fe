"""Office-31: 31 classes of office objects, from a shop, a camera and a webcam (Saenko 2010).

<https://doi.org/10.1007/978-3-642-15561-1_16>. On disk: `DIR/amazon/images/<class>/*.jpg` or
`DIR/amazon/<class>/*.jpg`, where `DIR` is the folder given or a folder `office31` in it.
"""

from pathlib import Path

from dial.data.domain import Domain
from dial.data.folders import read_folder
from dial.errors import DialError

DOMAINS = ("amazon", "dslr", "webcam")
_FOLDERS = ("", "office31", "office-31", "Office31", "Office-31", "office")


def load(domain: str, data: Path | None) -> Domain:
    """One of the three domains, below the folder `data`."""
    return read_folder(find(domain, data), name=f"office31:{domain}")


def find(domain: str, data: Path | None) -> Path:
    """The folder of a domain."""
    if data is None:
        raise DialError(
            wanted=f"the folder that holds Office-31's {domain}",
            got="none",
            fix="pass --data DIR (data=), where DIR/amazon, DIR/dslr and DIR/webcam are",
        )
    places = [data / folder / domain for folder in _FOLDERS]
    for place in places:
        if place.is_dir():
            return place
    raise DialError(
        wanted=f"Office-31's {domain} in {places[0]} or {places[1]}",
        got="no such folder",
        fix="pass --data DIR (data=), where DIR/amazon, DIR/dslr and DIR/webcam are",
    )
