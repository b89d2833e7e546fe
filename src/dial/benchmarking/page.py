"""A benchmark as one self-contained page: table, figure, command, seeds and settings."""

from collections.abc import Sequence

from jinja2 import Environment
from markupsafe import Markup

import dial
from dial.benchmarking.cells import PER_CELL
from dial.benchmarking.grids import Benchmark
from dial.benchmarking.repetition import repeat_command, seeds
from dial.benchmarking.results import Result
from dial.benchmarking.tables import Table

_TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ table.title }}</title>
<style>
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: left; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--line); }
tbody { border-bottom: 1px solid var(--line); }
.number { text-align: right; }
pre { background: var(--soft); padding: .7rem; white-space: pre-wrap; }
figure { background: white; margin: 0; padding: .5rem; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
</style>
<h1>{{ table.title }}</h1>
<p>Accuracy on the target in percent, at the last epoch: mean and deviation over seeds, the best of
each network in bold. No label of a target was used for training, or to choose an epoch or a seed.
{{ cells }} finished {{ "cell" if cells == 1 else "cells" }}; seeds {{ seeds }}.</p>
<div><table>
<thead><tr>{% for head in table.heads() %}
<th{% if loop.revindex <= table.columns|length %} class="number"{% endif %}>{{ head }}</th>
{%- endfor %}</tr></thead>
{% for block in table.blocks() %}<tbody>{% for line in block %}
<tr>{% for name in table.names(line) %}<td>{{ name }}</td>{% endfor %}
{%- for value in line.values %}<td class="number">
{%- if value is none %}-{% elif value.best %}<strong>{{ value.text() }}</strong>
{%- else %}{{ value.text() }}{% endif %}</td>{% endfor %}</tr>{% endfor %}
</tbody>
{% endfor %}</table></div>
{% if figure %}<h2>Figure</h2>
<figure>{{ figure }}</figure>{% endif %}
{% if command %}<h2>Command</h2>
<pre>{{ command }}</pre>{% endif %}
<h2>Settings</h2>
<div><table><tbody>{% for name, value in shared.items() %}
<tr><td>{{ name }}</td><td>{{ "by default" if value is none else value }}</td></tr>{% endfor %}
</tbody><tbody>{% for name, options in rows.items() %}
<tr><td>{{ name }}</td><td>{% for key, value in options.items() %}{{ key }} {{ value }}
{{- ", " if not loop.last }}{% else %}the method's defaults{% endfor %}</td></tr>{% endfor %}
</tbody></table></div>
<p>dial {{ version }}</p>
</html>
"""


def render(
    benchmark: Benchmark, results: Sequence[Result], table: Table, *, svg: bytes | None = None
) -> str:
    """The page, with the figure in it if there is one."""
    drawing = svg.decode() if svg else ""
    template = Environment(autoescape=True, keep_trailing_newline=True).from_string(_TEMPLATE)
    return template.render(
        table=table,
        cells=len(results),
        seeds=seeds(results),
        figure=Markup(drawing[drawing.index("<svg") :]) if drawing else "",  # noqa: S704 - ours
        command=repeat_command(benchmark, results),
        shared={k: v for k, v in results[0]["settings"].items() if k not in PER_CELL},
        rows={result["row"]: result["settings"]["options"] for result in results},
        version=dial.__version__,
    )
