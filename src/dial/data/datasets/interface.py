"""The interface of a data set, for a file of this package or an object of one's own."""

from abc import ABC, abstractmethod
from pathlib import Path

from dial.data.domain import Domain


class DataSet(ABC):
    """A known data set; its file's docstring opens with a line that describes it."""

    domains: tuple[str, ...]
    """The names of its domains, sorted."""

    @abstractmethod
    def load(self, domain: str, data: Path | None) -> Domain:
        """Returns one of `domains`; `data` is the folder that holds data sets on disk."""
