"""How pictures of a report are drawn: two themes, any names, one SVG file for each."""

import base64
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

_LONGEST = 22  # characters of a class name in a picture


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


def percent_axis(axes: Axes, which: str) -> None:
    """Write the figures of an axis, `x` or `y`, as percentages."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))


def legend(axes: Axes, theme: Theme, *, columns: int = 2, marks: float = 1.0) -> None:
    """Above the picture, where it covers nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        labelcolor=theme.text, fontsize=9, handlelength=1.2, columnspacing=1.2, borderaxespad=0.2,
        markerscale=marks,
    )  # fmt: skip


def render(
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
