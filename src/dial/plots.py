"""The pictures of a report: drawn twice, for light and dark pages, each with its text."""

import base64
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dial.shift import Distance

NAMED = 40
"""Classes beyond which a picture names none of them."""
_COLUMNS = 12  # layers beyond which there are lines in place of bars
_ANNOTATED = 12  # classes up to which a confusion matrix has its figures written in
_LONGEST = 22  # characters of a class name in a picture

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class Theme:
    """Colours for one kind of page."""

    text: str
    faint: str
    paper: str
    source: str
    target: str
    before: str
    others: tuple[str, ...]

    def colours(self) -> tuple[str, ...]:
        """All of them, in one order for all themes."""
        first = self.text, self.faint, self.paper, self.source, self.target, self.before
        return first + self.others


LIGHT = Theme(
    text="#3a4149", faint="#d9dee3", paper="#ffffff", source="#2f6fb3", target="#d9662b",
    before="#8a939d", others=("#2f6fb3", "#d9662b", "#3c8d5a", "#8d5bb5", "#b08a1e"),
)  # fmt: skip
DARK = Theme(
    text="#c9d1d9", faint="#39424c", paper="#1b2026", source="#6aaaf0", target="#f59a62",
    before="#8d98a5", others=("#6aaaf0", "#f59a62", "#6cc790", "#c39ae6", "#dcb94f"),
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """An image for light pages, one for dark ones, and what they show in words."""

    light: str
    dark: str
    alt: str


def shorten(name: str, longest: int = _LONGEST) -> str:
    """A name that fits beside an axis."""
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return name if len(name) <= longest else name[: longest - 1] + "\u2026"


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
            _legend(axes, theme)

    def told(value: float) -> str:
        return f"{value:.1%}" if percent else f"{value:.3g}"

    parts = [
        f"{name} goes from {told(points[0][1])} at epoch {points[0][0]:g} "
        f"to {told(points[-1][1])} at epoch {points[-1][0]:g}"
        for name, points in series.items()
    ]
    return _render(draw, (4.2, 3.0), alt=f"{title}: {'; '.join(parts)}.")


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
            _legend(axes, theme)

    parts = []
    for name, heights in values.items():
        worst = int(np.argmax(heights))
        parts.append(
            f"{name}: {np.mean(heights):.2f} on average over {len(layers)} layers, "
            f"largest at {shorten(layers[worst], 40)} with {heights[worst]:.2f}"
        )
    return _render(draw, (4.6, 3.2), alt=f"{axis}. {'; '.join(parts)}.")


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
        _legend(axes, theme, marks=1.6)

    alt = (
        f"{title}: {len(source)} source and {len(target)} target images as points, near each "
        f"other where the network sees them alike. Separation of the domains: {apart:.0%} "
        "(0 % is mixed, 100 % is apart)."
    )
    return _render(draw, (4.6, 3.6), alt=alt)


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
    return _render(draw, (side * 1.08, side), alt=_told(counts, classes), pixels=True)


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
    return _render(
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
    _percent(axes, "x")
    _legend(axes, theme, columns=3)


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
    _percent(axes, "x")
    _percent(axes, "y")
    _legend(axes, theme, columns=3)


def _percent(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))


def _legend(axes: Axes, theme: Theme, *, columns: int = 2, marks: float = 1.0) -> None:
    """Above the picture, where it covers nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        labelcolor=theme.text, fontsize=9, handlelength=1.2, columnspacing=1.2, borderaxespad=0.2,
        markerscale=marks,
    )  # fmt: skip


def _render(
    draw: Callable[[Axes, Theme], None],
    size: tuple[float, float],
    *,
    alt: str,
    pixels: bool = False,
) -> Picture:
    """Draw a picture; all but `pixels` get their dark colours by exchanging the light ones."""
    light = _svg(draw, size, LIGHT)
    dark = _svg(draw, size, DARK) if pixels else light
    for old, new in zip(LIGHT.colours(), DARK.colours(), strict=True):
        dark = dark.replace(old, new)
    return Picture(_uri(light), _uri(dark), alt)


def _uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _svg(draw: Callable[[Axes, Theme], None], size: tuple[float, float], theme: Theme) -> str:
    """An SVG file; text stays text, so that any script is drawn by the reader's fonts."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "dial",
        "text.parse_math": False,  # a class may be called $x$
        "font.family": "sans-serif",
        "font.size": 9.5,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # Only the width of a letter that the drawing font lacks is guessed.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06)
        figure = Figure(figsize=size, dpi=150, layout=layout)
        axes = figure.add_subplot()
        _dress(axes, theme)
        draw(axes, theme)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(theme.text)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()


def _dress(axes: Axes, theme: Theme) -> None:
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=theme.faint, linewidth=0.7)
    axes.tick_params(colors=theme.text, labelcolor=theme.text, length=0, labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(theme.faint)
