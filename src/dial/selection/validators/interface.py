"""The interface of a validator."""

from abc import ABC, abstractmethod
from typing import ClassVar

from dial.selection.outputs import Outputs


class Validator(ABC):
    """Scores a run by its outputs, without labels of the target."""

    needs_held_out: ClassVar[bool] = False
    """Whether it needs source images that were held out of training."""

    @abstractmethod
    def score(self, outputs: Outputs) -> float:
        """Returns a score; higher is better.

        Args:
            outputs: of the run; all its images have logits and features. `held_out` is there if
                the validator needs it.
        """
