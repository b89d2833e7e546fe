"""The domain-alignment layer, and all that your own training loop needs (torch alone)."""

from dial.layers.alignment import DomainAlignment, DomainAlignmentAct
from dial.layers.calibration import calibrate, to_network
from dial.layers.context import DomainSpecific, domain_layers, use_domain, use_domain_if_any
from dial.layers.conversion import AlignedLayer, Appended, convert, replace_modules
from dial.layers.folding import fold
from dial.layers.mixing import FixedMixing, LearnedMixing, Mixing, mix

__all__ = [
    "AlignedLayer",
    "Appended",
    "DomainAlignment",
    "DomainAlignmentAct",
    "DomainSpecific",
    "FixedMixing",
    "LearnedMixing",
    "Mixing",
    "calibrate",
    "convert",
    "domain_layers",
    "fold",
    "mix",
    "replace_modules",
    "to_network",
    "use_domain",
    "use_domain_if_any",
]
