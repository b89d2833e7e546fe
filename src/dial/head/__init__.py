"""A linear classifier for a target without labels, from features of both domains (torch alone)."""

from dial.head.fitting import Head as Head
from dial.head.fitting import align_means as align_means
from dial.head.fitting import fit_head as fit_head
from dial.head.fitting import scale_for_confidence as scale_for_confidence
from dial.head.neighbors import nearest as nearest
from dial.head.ridge import Moments as Moments
from dial.head.ridge import ridge as ridge
