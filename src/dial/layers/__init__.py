"""The domain-alignment layer and all that a training loop of one's own needs."""

from dial.layers.alignment import DomainAlignment, DomainAlignmentAct
from dial.layers.calibration import calibrate, to_network
from dial.layers.context import DomainSpecific, use_domain, use_domain_if_any
from dial.layers.conversion import Appended, convert
from dial.layers.folding import fold

__all__ = [
    "Appended",
    "DomainAlignment",
    "DomainAlignmentAct",
    "DomainSpecific",
    "calibrate",
    "convert",
    "fold",
    "to_network",
    "use_domain",
    "use_domain_if_any",
]
