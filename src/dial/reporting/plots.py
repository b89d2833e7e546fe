"""The pictures of a report, each with a description of what it shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dial.reporting.drawing import Picture, Theme, add_legend, render, shorten, use_percent

NAMED = 40
"""Classes beyond which a picture names none of them."""
_BARS = 12  # layers up to which there are bars; beyond there are lines
_LEVEL = 5  # layers up to which their names are level
_ANNOTATED = 12  # classes up to which a confusion matrix has its figures written in
_LARGE_NAMES = 20  # classes up to which their names are larger
_MARKED = 30  # epochs up to which each has a mark
_DARK_CELL = 0.55  # share beyond which a cell's figure is written in the paper's color

_WHOLE_PERCENT = FuncFormatter(lambda value, _: f"{value:.0%}")

Floats = npt.NDArray[Any]


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]], *, title: str, percent: bool = False
) -> Picture:
    """Draw a line for each name over the epochs: `(epoch, value)`."""

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (name, points) in enumerate(series.items()):
            x, y = zip(*points, strict=True)
            color = theme.lines[index % len(theme.lines)]
            marker = "o" if len(x) <= _MARKED else ""
            axes.plot(x, y, marker=marker, markersize=4, color=color, label=name, linewidth=1.8)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
        epochs = [epoch for points in series.values() for epoch, _ in points]
        first, last = min(epochs), max(epochs)
        spare = 0.03 * (last - first) or 0.5  # one epoch stands in the middle
        axes.set_xlim(first - spare, last + spare)
        if percent:
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter(_WHOLE_PERCENT)
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if len(series) > 1:
            add_legend(axes, theme)

    form = ".1%" if percent else ".3g"
    parts = [
        f"{name} goes from {points[0][1]:{form}} at epoch {points[0][0]:g} "
        f"to {points[-1][1]:{form}} at epoch {points[-1][0]:g}"
        for name, points in series.items()
    ]
    return render(draw, (4.2, 3.0), alt=f"{title}: {'; '.join(parts)}.")


def distances(
    layers: Sequence[str], series: Mapping[str, Sequence[float] | Floats], *, axis: str
) -> Picture:
    """Draw distances between the domains, `(L,)`, at every layer."""
    bars = len(layers) <= _BARS

    def draw(axes: Axes, theme: Theme) -> None:
        colors = [theme.target] if len(series) == 1 else [theme.before, theme.target]
        depth = np.arange(1, len(layers) + 1)
        width = 0.8 / len(series)
        for index, (name, heights) in enumerate(series.items()):
            if bars:
                place = depth - 0.4 + width * (index + 0.5)
                axes.bar(place, heights, width * 0.92, color=colors[index], label=name)
            else:
                axes.plot(depth, heights, color=colors[index], label=name, linewidth=1.6)
                axes.scatter(depth, heights, s=9, color=colors[index])
        _name_layers(axes, layers)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(axis)
        if len(series) > 1:
            add_legend(axes, theme)

    parts = []
    for name, heights in series.items():
        largest = int(np.argmax(heights))
        parts.append(
            f"{name}: {np.mean(heights):.2f} on average over {len(layers)} layers, "
            f"largest at {shorten(layers[largest], 40)} with {heights[largest]:.2f}"
        )
    return render(draw, (4.6, 3.2), alt=f"{axis}. {'; '.join(parts)}.")


def mixing(weights: Mapping[str, float]) -> Picture:
    """Draw the weight of a domain's own statistics at every layer, from 0.5 to 1."""
    layers, heights = [*weights], [*weights.values()]

    def draw(axes: Axes, theme: Theme) -> None:
        depth = np.arange(1, len(layers) + 1)
        axes.plot(depth, heights, color=theme.target, linewidth=1.6)
        axes.scatter(depth, heights, s=14, color=theme.target)
        _name_layers(axes, layers)
        axes.set_xlim(0.5, len(layers) + 0.5)
        axes.set_ylim(0.48, 1.02)
        axes.set_ylabel("weight of a domain's own statistics")

    least = int(np.argmin(heights))
    alt = (
        f"Weight of a domain's own statistics: {np.mean(heights):.3f} on average over "
        f"{len(layers)} layers, least at {shorten(layers[least], 40)} with {heights[least]:.3f}."
    )
    return render(draw, (4.6, 3.2), alt=alt)


def _name_layers(axes: Axes, layers: Sequence[str]) -> None:
    """Name the layers at the positions 1, 2, ... where they are few."""
    if len(layers) <= _BARS:
        names = [shorten(name, 14) for name in layers]
        axes.set_xticks(np.arange(1, len(layers) + 1), names)
        axes.tick_params(axis="x", labelrotation=0 if len(layers) <= _LEVEL else 40)
    else:
        axes.set_xlabel("layer, from the images to the classes")


def embedding(source: Floats, target: Floats, *, separation: float, title: str) -> Picture:
    """Draw the embedded images of both domains, `(N, 2)` each."""

    def draw(axes: Axes, theme: Theme) -> None:
        style: dict[str, Any] = {"s": 12, "linewidths": 0, "alpha": 0.7}
        axes.scatter(*source.T, marker="o", color=theme.source, label="source", **style)
        axes.scatter(*target.T, marker="D", color=theme.target, label="target", **style)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.04)
        add_legend(axes, theme, marks=1.6)

    alt = (
        f"{title}: {len(source)} source and {len(target)} target images as points, near each "
        f"other where the network sees them alike. Separation of the domains: {separation:.0%} "
        "(0 % is mixed, 100 % is apart)."
    )
    return render(draw, (4.6, 3.6), alt=alt)


def matrix(counts: npt.NDArray[np.int64], classes: Sequence[str]) -> Picture:
    """Draw a confusion matrix: rows are labels, columns predictions, colors shares of the row."""
    totals = counts.sum(1, keepdims=True)
    share = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    names = [shorten(name) for name in classes] if len(classes) <= NAMED else []
    annotated = len(classes) <= _ANNOTATED

    def draw(axes: Axes, theme: Theme) -> None:
        shades = LinearSegmentedColormap.from_list("share", [theme.paper, theme.source])
        image = axes.imshow(share, cmap=shades, vmin=0, vmax=1, interpolation="nearest")
        ticks = range(len(names))
        size = 8.5 if len(classes) <= _LARGE_NAMES else 7
        level = all(len(name) <= 2 for name in names)  # noqa: PLR2004
        axes.set_xticks(ticks, names, rotation=0 if level else 90, fontsize=size)
        axes.set_yticks(ticks, names, fontsize=size)
        axes.set_xlabel("predicted")
        axes.set_ylabel("label")
        axes.grid(visible=False)
        for row, column in np.argwhere(counts) if annotated else ():
            value = share[row, column]
            color = theme.paper if value > _DARK_CELL else theme.text
            text = f"{value:.0%}"[:-1]
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, colors=theme.text, labelsize=8)
        bar.ax.yaxis.set_major_formatter(_WHOLE_PERCENT)

    side = 5.4 if annotated or not names else 7.4
    return render(draw, (side * 1.08, side), alt=_describe(counts, classes), pixels=True)


def _describe(counts: npt.NDArray[np.int64], classes: Sequence[str]) -> str:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    parts = []
    for index in np.argsort(-wrong, axis=None, kind="stable")[:3]:
        row, column = divmod(int(index), len(classes))
        if wrong[row, column]:
            one, other = shorten(classes[row], 40), shorten(classes[column], 40)
            parts.append(f"{one} taken for {other} ({wrong[row, column]} of {counts[row].sum()})")
    right = f"{np.trace(counts)} of {counts.sum()} images lie on the diagonal"
    errors = f"; most frequent errors: {', '.join(parts)}" if parts else ""
    return f"Confusion matrix of {len(classes)} classes: {right}{errors}."


def balance(
    classes: Sequence[str], *, source: Floats, after: Floats, before: Floats | None
) -> Picture:
    """Draw the shares `(K,)` of the classes among source images and among predictions."""

    def draw_bars(axes: Axes, theme: Theme) -> None:
        """A bar of the predictions and a mark of the source for each class."""
        rows = np.arange(len(classes))
        mark: dict[str, Any] = {"marker": "|", "s": 110, "linewidths": 2.2}
        axes.barh(rows, after, 0.62, color=theme.target, label="predicted")
        axes.scatter(source, rows, color=theme.source, label="source", **mark)
        if before is not None:
            axes.scatter(
                before, rows, s=18, facecolors=theme.paper, edgecolors=theme.text, linewidths=1,
                label="predicted without adaptation",
            )  # fmt: skip
        axes.set_yticks(rows, [shorten(name) for name in classes])
        axes.invert_yaxis()
        axes.margins(y=0.02)
        axes.grid(visible=False, axis="y")
        use_percent(axes.xaxis)
        add_legend(axes, theme, columns=3)

    def draw_points(axes: Axes, theme: Theme) -> None:
        """A point for each class: its share of the source and of the predictions."""
        top = float(max(source.max(), after.max())) * 1.05
        axes.plot([0, top], [0, top], color=theme.before, linewidth=1, label="equal shares")
        if before is not None:
            axes.scatter(source, before, s=12, color=theme.before, label="without adaptation")
        axes.scatter(source, after, s=12, color=theme.target, label="predicted")
        axes.set_xlabel("share of the source")
        axes.set_ylabel("share of the predictions")
        use_percent(axes.xaxis)
        use_percent(axes.yaxis)
        add_legend(axes, theme, columns=3)

    def against(row: Any) -> str:
        return f"{shorten(classes[row], 40)}, {after[row]:.1%} against {source[row]:.1%}"

    alt = (
        f"Shares of {len(classes)} classes among the predictions against the source. Most above "
        f"the source: {against(np.argmax(after - source))}; "
        f"most below: {against(np.argmin(after - source))}."
    )
    if len(classes) <= NAMED:
        return render(draw_bars, (5.6, 1.1 + 0.26 * len(classes)), alt=alt)
    return render(draw_points, (5.6, 4.4), alt=alt)
