"""The pictures of a report, each with what it shows in words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dial.reporting.drawing import Picture, Theme, legend, percent_axis, render, shorten
from dial.reporting.shift import Distance

NAMED = 40
"""Classes beyond which a picture names none of them."""
_COLUMNS = 12  # layers beyond which there are lines in place of bars
_ANNOTATED = 12  # classes up to which a confusion matrix has its figures written in

Floats = npt.NDArray[Any]


def curves(
    series: dict[str, list[tuple[float, float]]], *, title: str, percent: bool = False
) -> Picture:
    """Lines over epochs, one for each name: `(epoch, value)`."""

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (name, points) in enumerate(series.items()):
            x, y = zip(*points, strict=True)
            colour = theme.others[index % len(theme.others)]
            marker = "o" if len(x) <= 30 else ""  # noqa: PLR2004
            axes.plot(x, y, marker=marker, markersize=4, color=colour, label=name, linewidth=1.8)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
        first, last = points[0][0], points[-1][0]
        spare = 0.03 * (last - first) or 0.5  # one epoch stands in the middle
        axes.set_xlim(first - spare, last + spare)
        if percent:
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if len(series) > 1:
            legend(axes, theme)

    def told(value: float) -> str:
        return f"{value:.1%}" if percent else f"{value:.3g}"

    parts = [
        f"{name} goes from {told(points[0][1])} at epoch {points[0][0]:g} "
        f"to {told(points[-1][1])} at epoch {points[-1][0]:g}"
        for name, points in series.items()
    ]
    return render(draw, (4.2, 3.0), alt=f"{title}: {'; '.join(parts)}.")


def distances(
    layers: Sequence[str],
    series: Mapping[str, Sequence[Distance]],
    *,
    what: str,
    axis: str,
) -> Picture:
    """The distance between the domains at every layer: `what` is a field of `Distance`."""
    values = {name: [getattr(d, what) for d in every] for name, every in series.items()}

    def draw(axes: Axes, theme: Theme) -> None:
        colours = [theme.target] if len(values) == 1 else [theme.before, theme.target]
        depth = np.arange(1, len(layers) + 1)
        for index, (name, heights) in enumerate(values.items()):
            if len(layers) <= _COLUMNS:
                width = 0.8 / len(values)
                place = depth - 0.4 + width * (index + 0.5)
                axes.bar(place, heights, width * 0.92, color=colours[index], label=name)
            else:
                axes.plot(depth, heights, color=colours[index], label=name, linewidth=1.6)
                axes.scatter(depth, heights, s=9, color=colours[index])
        if len(layers) <= _COLUMNS:
            axes.set_xticks(depth, [shorten(name, 14) for name in layers])
            axes.tick_params(axis="x", labelrotation=0 if len(layers) <= 5 else 40)  # noqa: PLR2004
        else:
            axes.set_xlabel("layer, from the images to the classes")
        axes.set_ylim(bottom=0)
        axes.set_ylabel(axis)
        if len(values) > 1:
            legend(axes, theme)

    parts = []
    for name, heights in values.items():
        worst = int(np.argmax(heights))
        parts.append(
            f"{name}: {np.mean(heights):.2f} on average over {len(layers)} layers, "
            f"largest at {shorten(layers[worst], 40)} with {heights[worst]:.2f}"
        )
    return render(draw, (4.6, 3.2), alt=f"{axis}. {'; '.join(parts)}.")


def clouds(source: Floats, target: Floats, *, apart: float, title: str) -> Picture:
    """Points `(N, 2)` of both domains."""

    def draw(axes: Axes, theme: Theme) -> None:
        style: dict[str, Any] = {"linewidths": 0, "alpha": 0.7}
        for name, points, colour, marker in (
            ("source", source, theme.source, "o"),
            ("target", target, theme.target, "D"),
        ):
            x, y = points.T
            axes.scatter(x, y, s=12, marker=marker, color=colour, label=name, **style)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.04)
        legend(axes, theme, marks=1.6)

    alt = (
        f"{title}: {len(source)} source and {len(target)} target images as points, near each "
        f"other where the network sees them alike. Separation of the domains: {apart:.0%} "
        "(0 % is mixed, 100 % is apart)."
    )
    return render(draw, (4.6, 3.6), alt=alt)


def matrix(counts: npt.NDArray[np.int64], classes: Sequence[str]) -> Picture:
    """A confusion matrix: rows are labels, columns predictions, colours shares of the row."""
    totals = counts.sum(1, keepdims=True)
    share = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    named = len(classes) <= NAMED

    def draw(axes: Axes, theme: Theme) -> None:
        shades = LinearSegmentedColormap.from_list("share", [theme.paper, theme.source])
        image = axes.imshow(share, cmap=shades, vmin=0, vmax=1, interpolation="nearest")
        ticks = list(range(len(classes))) if named else []
        names = [shorten(name) for name in classes] if named else []
        size = 8.5 if len(classes) <= 20 else 7  # noqa: PLR2004
        flat = all(len(name) <= 2 for name in names)  # noqa: PLR2004
        axes.set_xticks(ticks, names, rotation=0 if flat else 90, fontsize=size)
        axes.set_yticks(ticks, names, fontsize=size)
        axes.tick_params(length=0)
        axes.set_xlabel("predicted")
        axes.set_ylabel("label")
        axes.grid(visible=False)
        if len(classes) <= _ANNOTATED:
            for (row, column), value in np.ndenumerate(share):
                if counts[row, column]:
                    strong = theme.paper if value > 0.55 else theme.text  # noqa: PLR2004
                    text = f"{value:.0%}"[:-1]
                    axes.text(column, row, text, ha="center", va="center", fontsize=8, color=strong)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, colors=theme.text, labelsize=8)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))

    side = 5.4 if len(classes) <= _ANNOTATED or not named else 7.4
    return render(draw, (side * 1.08, side), alt=_told(counts, classes), pixels=True)


def _told(counts: npt.NDArray[np.int64], classes: Sequence[str]) -> str:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    parts = []
    for index in np.argsort(-wrong, axis=None, kind="stable")[:3]:
        row, column = divmod(int(index), len(classes))
        if wrong[row, column]:
            one, other = shorten(classes[row], 40), shorten(classes[column], 40)
            parts.append(f"{one} taken for {other} ({wrong[row, column]} of {counts[row].sum()})")
    rights = f"{np.trace(counts)} of {counts.sum()} images lie on the diagonal"
    errors = f"; most frequent errors: {', '.join(parts)}" if parts else ""
    return f"Confusion matrix of {len(classes)} classes: {rights}{errors}."


def balance(
    classes: Sequence[str], source: Floats, after: Floats, before: Floats | None
) -> Picture:
    """Shares `(K,)` of the classes among source images and among predictions."""
    named = len(classes) <= NAMED
    draw = _bars if named else _scatter
    most = int(np.argmax(after - source))
    least = int(np.argmin(after - source))
    alt = (
        f"Shares of {len(classes)} classes among the predictions against the source. Most above "
        f"the source: {shorten(classes[most], 40)}, {after[most]:.1%} against {source[most]:.1%}; "
        f"most below: {shorten(classes[least], 40)}, {after[least]:.1%} against "
        f"{source[least]:.1%}."
    )
    height = 1.1 + 0.26 * len(classes) if named else 4.4
    return render(
        lambda axes, theme: draw(axes, theme, classes, source, after, before),
        (5.6, height),
        alt=alt,
    )


def _bars(
    axes: Axes,
    theme: Theme,
    classes: Sequence[str],
    source: Floats,
    after: Floats,
    before: Floats | None,
) -> None:
    """Bars of the predictions with marks of the source, one row a class."""
    rows = np.arange(len(classes))
    axes.barh(rows, after, 0.62, color=theme.target, label="predicted")
    axes.scatter(
        source, rows, marker="|", s=110, linewidths=2.2, color=theme.source, label="source"
    )
    if before is not None:
        axes.scatter(
            before, rows, s=18, facecolors=theme.paper, edgecolors=theme.text, linewidths=1,
            label="predicted without adaptation",
        )  # fmt: skip
    axes.set_yticks(rows, [shorten(name) for name in classes])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(y=0.02)
    axes.grid(visible=False, axis="y")
    percent_axis(axes, "x")
    legend(axes, theme, columns=3)


def _scatter(
    axes: Axes,
    theme: Theme,
    classes: Sequence[str],  # noqa: ARG001 - the same for both kinds
    source: Floats,
    after: Floats,
    before: Floats | None,
) -> None:
    """A point a class: its share of the source and of the predictions."""
    top = float(max(source.max(), after.max())) * 1.05
    axes.plot([0, top], [0, top], color=theme.before, linewidth=1, label="equal shares")
    if before is not None:
        axes.scatter(source, before, s=12, color=theme.before, label="without adaptation")
    axes.scatter(source, after, s=12, color=theme.target, label="predicted")
    axes.set_xlabel("share of the source")
    axes.set_ylabel("share of the predictions")
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    legend(axes, theme, columns=3)
