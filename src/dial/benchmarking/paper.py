"""The figures of the paper's two tables on Office-31, in percent, as it prints them.

Carlucci, Porzi, Caputo, Ricci and Rota Bulo, "Just DIAL: DomaIn Alignment Layers for Unsupervised
Domain Adaptation", 2017, Tables 1 and 2 (https://arxiv.org/abs/1702.06332). The average of AlexNet
with DIAL sparse is printed as 76.5, while its row gives 76.6.
"""

from typing import NamedTuple

TASKS = ("A->W", "A->D", "W->A", "W->D", "D->A", "D->W")


class PaperRow(NamedTuple):
    """A row of the paper's tables, in percent; None where the paper gives no figure."""

    network: str
    method: str
    accuracies: tuple[float | None, ...]
    average: float | None
    entropy: bool = False


_A, _I = "AlexNet", "Inception-BN"
TABLE_1 = (
    PaperRow(_A, "Source only", (61.6, 63.8, 49.8, 99.0, 51.1, 95.4), 70.1),
    PaperRow(_A, "DDC", (61.8, 64.4, 52.2, 98.5, 52.1, 95.0), 70.6),
    PaperRow(_A, "DAN", (68.5, 67.0, 53.1, 99.0, 54.0, 96.0), 72.9),
    PaperRow(_A, "ReverseGrad", (73.0, None, None, 99.2, None, 96.4), None),
    PaperRow(_A, "DIAL sparse", (76.5, 72.4, 55.9, 99.4, 58.6, 97.0), 76.5, entropy=True),
    PaperRow(_I, "Source only", (70.3, 70.5, 57.9, 100.0, 60.1, 94.3), 75.5),
    PaperRow(_I, "AdaBN", (74.2, 73.1, 57.4, 99.8, 59.8, 95.7), 76.7),
    PaperRow(_I, "AdaBN + CORAL", (75.4, 72.7, 60.5, 99.6, 59.0, 96.2), 77.2),
    PaperRow(_I, "DIAL BN", (82.9, 87.3, 62.6, 99.9, 63.1, 98.2), 82.4, entropy=True),
)
TABLE_2 = (
    PaperRow(_A, "Source only", (61.6, 63.8, 49.8, 99.0, 51.1, 95.4), 70.1),
    PaperRow(_A, "Entropy only", (63.7, 65.6, 35.5, 96.6, 42.9, 99.6), 67.3, entropy=True),
    PaperRow(_A, "DIAL BN", (73.2, 71.7, 56.2, 99.3, 59.6, 95.9), 76.0, entropy=True),
    PaperRow(_A, "DIAL Epsilon", (71.6, 71.7, 56.7, 99.3, 59.4, 99.2), 76.3, entropy=True),
    PaperRow(_A, "DIAL sparse", (76.5, 72.4, 55.9, 99.4, 58.6, 97.0), 76.5, entropy=True),
    PaperRow(_A, "DIAL Epsilon sparse", (72.1, 72.3, 57.0, 99.7, 59.0, 97.2), 76.2, entropy=True),
    PaperRow(_A, "DIAL Laplacian BN", (73.0, 72.0, 55.1, 98.7, 56.7, 96.6), 75.4, entropy=True),
    PaperRow(_A, "DIAL BN", (62.2, 65.5, 47.1, 99.2, 47.6, 95.2), 69.5),
    PaperRow(_A, "DIAL Epsilon", (65.3, 64.5, 47.3, 99.5, 48.4, 95.0), 70.0),
    PaperRow(_A, "DIAL sparse", (60.6, 64.0, 47.0, 99.3, 48.1, 95.6), 69.1),
    PaperRow(_A, "DIAL Epsilon sparse", (64.6, 65.3, 46.9, 99.7, 48.4, 95.7), 70.1),
    PaperRow(_A, "DIAL Laplacian BN", (61.8, 65.3, 46.8, 98.4, 46.8, 94.8), 69.0),
)
