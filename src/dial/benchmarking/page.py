"""A benchmark as one self-contained page: table, figure, settings and command."""

from collections.abc import Sequence
from importlib.resources import files as package_files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dial.benchmarking.cells import PER_CELL
from dial.benchmarking.results import Result
from dial.benchmarking.tables import PARTIAL, Table
from dial.reporting.repetition import in_force


def render(
    table: Table, results: Sequence[Result], *, command: str | None, svg: bytes | None = None
) -> str:
    """The page, with the figure in it if there is one, and the command that makes it again."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = (
        package_files("dial.benchmarking")
        .joinpath("benchmark.html.jinja")
        .read_text(encoding="utf-8")
    )
    drawing = svg.decode() if svg else ""
    shared = {k: v for k, v in results[0]["settings"].items() if k not in PER_CELL}
    return environment.from_string(source).render(
        table=table,
        sign=PARTIAL,
        cells=len(results),
        figure=Markup(drawing[drawing.index("<svg") :]) if drawing else "",  # noqa: S704 - ours
        command=command,
        shared=in_force(shared),
        rows={result["row"]: result["settings"]["options"] for result in results},
    )
