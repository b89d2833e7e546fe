"""An ablation as a figure: grouped bars, each variant with the entropy loss and without it."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dial.benchmarking.tables import Line, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {False: "#9aa5b1", True: "#2166ac"}
_WIDTH = 0.4


def render(table: Table) -> dict[str, bytes]:
    """The figure as `svg` and `png`; nothing where there is nothing to draw."""
    import matplotlib as mpl

    figure = draw(table)
    if figure is None:
        return {}
    images = {}
    # A fixed salt and no date: the same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "dial"}):
        metadata: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}
        for kind, about in metadata.items():
            out = io.BytesIO()
            figure.savefig(out, format=kind, dpi=150, metadata=about)
            images[kind] = out.getvalue()
    return images


def draw(table: Table) -> "Figure | None":
    """A panel for our network, and one for each of the paper's."""
    from matplotlib.figure import Figure

    panels = [(block, common_columns(table, block)) for block in table.blocks()]
    panels = [(block, columns) for block, columns in panels if columns]
    if not any(line.ours for block, _ in panels for line in block):
        return None
    figure = Figure(figsize=(6.4 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (block, columns) in zip(axes, panels, strict=True):
        _panel(axis, block, columns)
        every = all(line.values[-1] for line in block if any(line.values))
        tasks = "all transfers" if every else ", ".join(table.columns[c] for c in columns)
        axis.set_title(f"{block[0].network}\naverage over {tasks}", fontsize=10)
    axes[0].set_ylabel("accuracy on the target, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def common_columns(table: Table, block: Sequence[Line]) -> list[int]:
    """The tasks that every line has which has any, so that all bars are over the same ones."""
    begun = [line for line in block if any(line.values)]
    tasks = range(len(table.columns) - 1)
    return [task for task in tasks if begun and all(line.values[task] for line in begun)]


def _panel(axis: Any, block: Sequence[Line], columns: Sequence[int]) -> None:
    variants = list(dict.fromkeys(line.variant for line in block if any(line.values)))
    for entropy in (False, True):
        lines = {line.variant: line for line in block if line.entropy is entropy}
        bars = [(variants.index(v), line) for v, line in lines.items() if any(line.values)]
        places = [place + (_WIDTH / 2 if entropy else -_WIDTH / 2) for place, _ in bars]
        heights = [_height(line, columns) for _, line in bars]
        drawn = axis.bar(
            places,
            heights,
            _WIDTH,
            color=_COLOURS[entropy],
            label="with entropy loss" if entropy else "without entropy loss",
        )
        axis.bar_label(drawn, fmt="%.1f", fontsize=7, padding=1)
    axis.set_xticks(range(len(variants)), variants, rotation=30, ha="right", fontsize=8)
    axis.set_ylim(0, 105)  # from zero: the length of a bar is its value
    axis.spines[["top", "right"]].set_visible(False)


def _height(line: Line, columns: Sequence[int]) -> float:
    average = line.values[-1]
    if average is not None and len(columns) == len(line.values) - 1:
        return average.mean  # the paper's is the one it prints
    values = [value.mean for column in columns if (value := line.values[column])]
    return sum(values) / len(values)
