"""The figure of an ablation: grouped bars, each variant with the entropy loss and without it."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dial.benchmarking.tables import PARTIAL, Line, Table, Value, average

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PLAIN = {"Source only": "no DA-layers", "Entropy only": "no DA-layers"}  # one network, one group
_WIDTH = 0.4


def render(table: Table) -> dict[str, bytes]:
    """The figure as `svg` and `png`; empty if there is nothing to draw."""
    import matplotlib as mpl

    figure = draw(table)
    if figure is None:
        return {}
    images = {"svg": io.BytesIO(), "png": io.BytesIO()}
    # A fixed salt and no date: the same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "dial"}):
        figure.savefig(images["svg"], format="svg", dpi=150, metadata={"Date": None})
        figure.savefig(images["png"], format="png", dpi=150, metadata={"Software": None})
    return {kind: image.getvalue() for kind, image in images.items()}


def draw(table: Table) -> "Figure | None":
    """A panel for our network, and one for each of the paper's, all over the same tasks."""
    from matplotlib.figure import Figure

    tasks = common_tasks(table)
    panels = [bars for block in table.blocks() if (bars := _bars(block, tasks))]
    if not any(line.ours for bars in panels for line, _ in bars):
        return None
    over = ", ".join(table.columns[task] for task in tasks)
    if len(tasks) > 1:
        every = len(tasks) == len(table.columns) - 1
        over = f"average over {f'all {len(tasks)} transfers' if every else over}"
    figure = Figure(figsize=(6.4 * len(panels), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, bars in zip(axes, panels, strict=True):
        _panel(axis, bars)
        axis.set_title(f"{bars[0][0].network}\n{over}", fontsize=10)
    axes[0].set_ylabel("accuracy on the target, %")
    handles, about = axes[0].get_legend_handles_labels(), f"ours: {table.over()}"
    if any(value.partial for bars in panels for _, value in bars):
        about += f", {PARTIAL} of fewer seeds"
    figure.legend(
        *handles, loc="outside lower center", ncols=2, frameon=False, title=about, title_fontsize=9
    )
    return figure


def common_tasks(table: Table) -> list[int]:
    """The tasks that all our lines have, but for empty lines, so that all bars are comparable."""
    lines = [line for line in table.lines if line.ours and any(line.values)]
    tasks = range(len(table.columns) - 1)
    return [task for task in tasks if lines and all(line.values[task] for line in lines)]


def _bars(block: Sequence[Line], tasks: Sequence[int]) -> list[tuple[Line, Value]]:
    """The lines that have a value over all of these tasks, and that value."""
    bars = []
    for line in block:
        value = average([line.values[task] for task in tasks])
        if len(tasks) == len(line.values) - 1:  # the paper's average is not always that of its row
            value = line.values[-1] or value
        if value is not None:
            bars.append((line, value))
    return bars


def _panel(axis: Any, bars: Sequence[tuple[Line, Value]]) -> None:
    groups = [_PLAIN.get(line.method, line.method) for line, _ in bars]
    variants = list(dict.fromkeys(groups))
    for entropy, color, shift in ((False, "#9aa5b1", -_WIDTH / 2), (True, "#2166ac", _WIDTH / 2)):
        places = [i for i, (line, _) in enumerate(bars) if line.entropy is entropy]
        values = [bars[i][1] for i in places]
        rectangles = axis.bar(
            [variants.index(groups[i]) + shift for i in places],
            [value.mean for value in values],
            _WIDTH,
            yerr=[value.deviation or 0.0 for value in values],
            ecolor="#4a4a4a",
            color=color,
            label="with entropy loss" if entropy else "without entropy loss",
        )
        labels = [value.text(with_deviation=False) for value in values]
        axis.bar_label(rectangles, labels, fontsize=7, padding=1)
    axis.set_xticks(range(len(variants)), variants, rotation=30, ha="right", fontsize=8)
    axis.set_ylim(0, 105)  # from zero: the length of a bar is its value
    axis.spines[["top", "right"]].set_visible(False)
