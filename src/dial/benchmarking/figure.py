"""An ablation as a figure: grouped bars, each variant with the entropy loss and without it."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dial.benchmarking.tables import PARTIAL, Line, Table, Value, average

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
    """A panel for our network, and one for each of the paper's, all over the same tasks."""
    from matplotlib.figure import Figure

    tasks = common_tasks(table)
    blocks = [_bars(block, tasks) for block in table.blocks()] if tasks else []
    panels = [bars for bars in blocks if bars]
    if not any(line.ours for bars in panels for line, _ in bars):
        return None
    figure = Figure(figsize=(6.4 * len(panels), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, bars in zip(axes, panels, strict=True):
        _panel(axis, bars)
        axis.set_title(f"{bars[0][0].network}\n{_over(table, tasks)}", fontsize=10)
    axes[0].set_ylabel("accuracy on the target, %")
    handles, labels = axes[0].get_legend_handles_labels()
    about = "ours: " + table.over()
    if any(value.partial for bars in panels for _, value in bars):
        about += f", {PARTIAL} of fewer seeds"
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, title=about
    )
    legend.get_title().set_fontsize(9)
    return figure


def common_tasks(table: Table) -> list[int]:
    """The tasks that every line of ours has which has any, so that all bars are over the same."""
    begun = [line for line in table.lines if line.ours and any(line.values)]
    tasks = range(len(table.columns) - 1)
    return [task for task in tasks if begun and all(line.values[task] for line in begun)]


def _over(table: Table, tasks: Sequence[int]) -> str:
    if len(tasks) == 1:
        return table.columns[tasks[0]]
    every = len(tasks) == len(table.columns) - 1
    names = f"all {len(tasks)} transfers" if every else ", ".join(table.columns[t] for t in tasks)
    return f"average over {names}"


def _bars(block: Sequence[Line], tasks: Sequence[int]) -> list[tuple[Line, Value]]:
    """The lines that have a value over all of these tasks, and that value."""
    bars = []
    for line in block:
        value = average([line.values[task] for task in tasks])
        printed = line.values[-1]
        if printed is not None and len(tasks) == len(line.values) - 1:
            value = printed  # the paper's own average, which is not always that of its row
        if value is not None:
            bars.append((line, value))
    return bars


def _panel(axis: Any, bars: Sequence[tuple[Line, Value]]) -> None:
    variants = list(dict.fromkeys(line.variant for line, _ in bars))
    for entropy in (False, True):
        some = [(line, value) for line, value in bars if line.entropy is entropy]
        shift = _WIDTH / 2 if entropy else -_WIDTH / 2
        drawn = axis.bar(
            [variants.index(line.variant) + shift for line, _ in some],
            [value.mean for _, value in some],
            _WIDTH,
            yerr=[value.deviation or 0.0 for _, value in some],
            ecolor="#4a4a4a",
            color=_COLOURS[entropy],
            label="with entropy loss" if entropy else "without entropy loss",
        )
        labels = [value.text(with_deviation=False) for _, value in some]
        axis.bar_label(drawn, labels, fontsize=7, padding=1)
    axis.set_xticks(range(len(variants)), variants, rotation=30, ha="right", fontsize=8)
    axis.set_ylim(0, 105)  # from zero: the length of a bar is its value
    axis.spines[["top", "right"]].set_visible(False)
