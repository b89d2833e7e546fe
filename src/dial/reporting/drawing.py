"""How pictures of a report are drawn: as SVG, in light and dark colors, with any class names."""

import base64
import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator


class Theme(NamedTuple):
    """Colors for light or for dark pages."""

    text: str
    faint: str
    paper: str
    before: str
    source: str
    target: str
    green: str
    purple: str
    yellow: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Colors of lines, in the order in which they are used."""
        return self.source, self.target, self.green, self.purple, self.yellow


LIGHT = Theme(
    text="#3a4149", faint="#d9dee3", paper="#ffffff", before="#8a939d", source="#2f6fb3",
    target="#d9662b", green="#3c8d5a", purple="#8d5bb5", yellow="#b08a1e",
)  # fmt: skip
DARK = Theme(
    text="#c9d1d9", faint="#39424c", paper="#1b2026", before="#8d98a5", source="#6aaaf0",
    target="#f59a62", green="#6cc790", purple="#c39ae6", yellow="#dcb94f",
)  # fmt: skip

Draw = Callable[[Axes, Theme], None]


class Picture(NamedTuple):
    """An image for light pages, one for dark pages, and a description in words."""

    light: str
    dark: str
    alt: str


def shorten(name: str, longest: int = 22) -> str:
    """Returns a name that fits beside an axis."""
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return name if len(name) <= longest else name[: longest - 1] + "\u2026"


def use_percent(axis: Axis) -> None:
    """Label an axis with percentages."""
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))


def add_legend(axes: Axes, theme: Theme, *, columns: int = 2, marks: float = 1.0) -> None:
    """Put the legend above the picture, where it covers nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        labelcolor=theme.text, fontsize=9, handlelength=1.2, columnspacing=1.2, borderaxespad=0.2,
        markerscale=marks,
    )  # fmt: skip


def render(draw: Draw, size: tuple[float, float], *, alt: str, pixels: bool = False) -> Picture:
    """Returns a picture; the dark one is the light one with other colors, unless it has pixels."""
    light = _svg(draw, size, LIGHT)
    dark = _svg(draw, size, DARK) if pixels else light
    for old, new in zip(LIGHT, DARK, strict=True):
        dark = dark.replace(old, new)
    return Picture(_uri(light), _uri(dark), alt)


def _uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _svg(draw: Draw, size: tuple[float, float], theme: Theme) -> str:
    """Returns an SVG file; text stays text, so that the reader's fonts draw any script."""
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
        axes.set_axisbelow(True)
        axes.grid(visible=True, color=theme.faint, linewidth=0.7)
        axes.tick_params(colors=theme.text, labelcolor=theme.text, length=0, labelsize=9)
        axes.spines[:].set_color(theme.faint)
        draw(axes, theme)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_color(theme.text)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()
