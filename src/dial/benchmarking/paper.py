"""The figures of the paper's two tables on Office-31, in percent, as it prints them.

Carlucci, Porzi, Caputo, Ricci and Rota Bulo, "Just DIAL: DomaIn Alignment Layers for Unsupervised
Domain Adaptation", 2017, Tables 1 and 2. A figure that the paper does not give is None. The
average of AlexNet with DIAL sparse stands at 76.5, where its row gives 76.6; it is left as it is.
"""

from dataclasses import dataclass

TASKS = ("A->W", "A->D", "W->A", "W->D", "D->A", "D->W")


@dataclass(frozen=True)
class PaperRow:
    """One line of a table; `average` is the one printed."""

    network: str
    method: str
    variant: str
    entropy: bool
    accuracies: tuple[float | None, ...]
    average: float | None


def _row(
    network: str,
    method: str,
    accuracies: tuple[float | None, ...],
    average: float | None,
    *,
    entropy: bool = False,
) -> PaperRow:
    variant = NO_LAYERS if method in ("Source only", "Entropy only") else method
    return PaperRow(network, method, variant, entropy, accuracies, average)


NO_LAYERS = "no DA-layers"
_A, _I = "AlexNet", "Inception-BN"

TABLE_1 = (
    _row(_A, "Source only", (61.6, 63.8, 49.8, 99.0, 51.1, 95.4), 70.1),
    _row(_A, "DDC", (61.8, 64.4, 52.2, 98.5, 52.1, 95.0), 70.6),
    _row(_A, "DAN", (68.5, 67.0, 53.1, 99.0, 54.0, 96.0), 72.9),
    _row(_A, "ReverseGrad", (73.0, None, None, 99.2, None, 96.4), None),
    _row(_A, "DIAL sparse", (76.5, 72.4, 55.9, 99.4, 58.6, 97.0), 76.5, entropy=True),
    _row(_I, "Source only", (70.3, 70.5, 57.9, 100.0, 60.1, 94.3), 75.5),
    _row(_I, "AdaBN", (74.2, 73.1, 57.4, 99.8, 59.8, 95.7), 76.7),
    _row(_I, "AdaBN + CORAL", (75.4, 72.7, 60.5, 99.6, 59.0, 96.2), 77.2),
    _row(_I, "DIAL BN", (82.9, 87.3, 62.6, 99.9, 63.1, 98.2), 82.4, entropy=True),
)

TABLE_2 = (
    _row(_A, "Source only", (61.6, 63.8, 49.8, 99.0, 51.1, 95.4), 70.1),
    _row(_A, "Entropy only", (63.7, 65.6, 35.5, 96.6, 42.9, 99.6), 67.3, entropy=True),
    _row(_A, "DIAL BN", (73.2, 71.7, 56.2, 99.3, 59.6, 95.9), 76.0, entropy=True),
    _row(_A, "DIAL Epsilon", (71.6, 71.7, 56.7, 99.3, 59.4, 99.2), 76.3, entropy=True),
    _row(_A, "DIAL sparse", (76.5, 72.4, 55.9, 99.4, 58.6, 97.0), 76.5, entropy=True),
    _row(_A, "DIAL Epsilon sparse", (72.1, 72.3, 57.0, 99.7, 59.0, 97.2), 76.2, entropy=True),
    _row(_A, "DIAL Laplacian BN", (73.0, 72.0, 55.1, 98.7, 56.7, 96.6), 75.4, entropy=True),
    _row(_A, "DIAL BN", (62.2, 65.5, 47.1, 99.2, 47.6, 95.2), 69.5),
    _row(_A, "DIAL Epsilon", (65.3, 64.5, 47.3, 99.5, 48.4, 95.0), 70.0),
    _row(_A, "DIAL sparse", (60.6, 64.0, 47.0, 99.3, 48.1, 95.6), 69.1),
    _row(_A, "DIAL Epsilon sparse", (64.6, 65.3, 46.9, 99.7, 48.4, 95.7), 70.1),
    _row(_A, "DIAL Laplacian BN", (61.8, 65.3, 46.8, 98.4, 46.8, 94.8), 69.0),
)
