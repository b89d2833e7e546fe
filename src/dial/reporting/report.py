"""Records in, page out: one self-contained HTML page about a finished run."""

import base64
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np

from dial import files
from dial.reporting import evidence, findings, plots
from dial.reporting.evidence import Evidence
from dial.reporting.gathering import GALLERY, most_changed
from dial.reporting.repetition import in_force, repeat_command
from dial.training import run_folder

NAME = "report.html"
_OPEN_TABLE = 12  # classes up to which the table of classes is not folded away
_NOT_LOSSES = ("epoch", "step", "lr", "target_accuracy", "target_classes_predicted")

Context = dict[str, Any]


def write(folder: Path, *, out: Path | None = None, baseline: Path | None = None) -> Path:
    """Write the page about a finished run, and return where.

    Args:
        folder: the run's.
        out: the page; `report.html` in the run's folder by default.
        baseline: the folder of a finished run on the same target, whose predictions are taken
            for those without adaptation.

    Raises:
        DialError: a run that is not there, not finished, or without evidence; a baseline on
            another target or with other classes.
    """
    result, history = run_folder.read_records(folder)
    found = evidence.load(folder)
    if baseline is not None:
        other, _ = run_folder.read_records(baseline)
        told = f"another run on the same images: {other['method']}, seed {other['seed']}"
        found = found.against(evidence.load(baseline), without=told)
    config = run_folder.read_config(folder / "config.json")
    path = out or folder / NAME
    files.write_text(path, render(found, config=config, result=result, history=history))
    return path


def render(found: Evidence, *, config: Context, result: Context, history: list[Context]) -> str:
    """The page as text."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": _percent, "number": _number, "clean": _clean}
    source = (
        package_files("dial.reporting").joinpath("report.html.jinja").read_text(encoding="utf-8")
    )
    context = {
        "result": result,
        "config": config,
        "evidence": found,
        "summary": _summary(found),
        "chosen": result.get("chosen"),
        "trials": result.get("trials", []),
        "judged": {
            "estimate": result.get("estimated_accuracy"),
            "doubt": result.get("estimate_doubt"),
            "missing": result.get("no_estimate"),
            "warnings": result.get("warnings", []),
        },
        "curves": _curves(history),
        "shift": _shift(found),
        "clouds": _clouds(found),
        "classes": _classes(found),
        "gallery": _gallery(found),
        "settings": _settings(config),
        "repeat": repeat_command(config, found.repeat, out="RUN"),
    }
    return environment.from_string(source).render(context)


def _summary(found: Evidence) -> Context:
    before, after, labels = found.before, found.after, found.labels
    comparison = None
    if before is not None and labels is not None:
        comparison = findings.compare(before.predicted, after.predicted, labels)
    count = len(after.predicted)
    changed = 0 if before is None else int((before.predicted != after.predicted).sum())
    return {
        "images": count,
        "changed": changed,
        "used": len(np.unique(after.predicted)),
        "confidence": float(after.confidence.mean()),
        "confidence_before": None if before is None else float(before.confidence.mean()),
        "accuracy": None if labels is None else float(np.mean(after.predicted == labels)),
        "comparison": comparison,
        "doubts": findings.doubts(
            found.source_counts, after.predicted, after.confidence, comparison
        ),
    }


def _curves(history: list[Context]) -> list[Context]:
    """Losses, the target's accuracy if there is one, and the learning rate."""
    names = [n for n, v in history[0].items() if n not in _NOT_LOSSES and isinstance(v, float)]
    groups = {
        "Losses, averaged over each epoch": names,
        "Target accuracy of up to 500 images (labels for scoring only)": ["target_accuracy"],
        "Learning rate": ["lr"],
    }
    pictures = []
    for title, group in groups.items():
        series = {
            name.replace("_", " "): [(r["epoch"], r[name]) for r in history if name in r]
            for name in group
            if name in history[0]
        }
        if series:
            percent = "target_accuracy" in group
            picture = plots.curves(series, title=title, percent=percent)
            pictures.append({"title": title, "picture": picture})
    return pictures


def _shift(found: Evidence) -> Context:
    """Pictures and a table of the distances at the normalisation layers."""
    if not found.layers:
        return {"pictures": [], "rows": []}
    series = {"this network": found.shift_after}
    if found.shift_before is not None:  # of the run itself, also where the page has a baseline
        series = {
            "source's statistics": found.shift_before,
            "each domain's own": found.shift_after,
        }
    measures = {
        "location": ("Where the values lie", "difference of means, in deviations"),
        "scale": ("How far they spread", "log ratio of deviations"),
    }
    pictures = [
        {"title": title, "picture": plots.distances(found.layers, series, what=what, axis=axis)}
        for what, (title, axis) in measures.items()
    ]
    before = found.shift_before or [None] * len(found.layers)
    rows = list(zip(found.layers, before, found.shift_after, strict=True))
    return {"pictures": pictures, "rows": rows}


def _clouds(found: Evidence) -> list[Context]:
    """A picture of the hidden features and one of the outputs, without and with adaptation."""
    views = {"without adaptation": found.before, "with adaptation": found.after}
    if found.before is None:
        views = {"this network": found.after}
    kinds = {"Hidden features": "features", "Outputs": "outputs"}
    pictures = []
    for kind, field in kinds.items():
        for name, view in views.items():
            if view is None:
                continue
            cloud, title = getattr(view, field), f"{kind}, {name}"
            picture = plots.clouds(cloud.source, cloud.target, apart=cloud.separation, title=title)
            told = f"{title}: separation {_percent(cloud.separation, 0)}"
            pictures.append({"title": told, "picture": picture})
    return pictures


def _classes(found: Evidence) -> Context:
    """The confusion matrix, the balance of the classes, and a row for each of them."""
    before = None if found.before is None else found.before.predicted
    after, labels, count = found.after.predicted, found.labels, len(found.classes)
    matrix = None
    if labels is not None:
        counts = findings.confusion(after, labels, count)
        matrix = plots.matrix(counts, found.classes)
    shares = None if before is None else findings.shares(before, count)
    source = found.source_counts / max(1, found.source_counts.sum())
    return {
        "matrix": matrix,
        "wide": _OPEN_TABLE < count <= plots.NAMED,
        "named": count <= plots.NAMED,
        "balance": plots.balance(found.classes, source, findings.shares(after, count), shares),
        "rows": findings.per_class(found.classes, found.source_counts, before, after, labels),
        "open": count <= _OPEN_TABLE,
    }


def _gallery(found: Evidence) -> Context:
    """Images whose prediction changed most; the least sure ones where nothing is to compare."""
    gallery, after, before = found.gallery, found.after, found.before
    place = {int(row): index for index, row in enumerate(gallery.rows)}
    if before is None:
        order = np.argsort(after.confidence, kind="stable")
    else:
        order = most_changed(before, after)
    chosen = [int(row) for row in order if int(row) in place][:GALLERY]
    cards = []
    for row in chosen:
        code = base64.b64encode(gallery.pictures[place[row]]).decode()
        label = None if found.labels is None else int(found.labels[row])
        cards.append(
            {
                "name": gallery.names[place[row]],
                "image": f"data:image/jpeg;base64,{code}",
                "before": None if before is None else _guess(found, before, row),
                "after": _guess(found, after, row),
                "label": None if label is None else found.classes[label],
                "right": label == int(after.predicted[row]),
            }
        )
    return {"cards": cards, "small": gallery.side < 64, "kept": len(gallery.rows)}  # noqa: PLR2004


def _guess(found: Evidence, view: evidence.View, row: int) -> Context:
    name = found.classes[int(view.predicted[row])]
    return {"name": name, "confidence": float(view.confidence[row])}


def _settings(config: Context) -> dict[str, Any]:
    """Settings of the run, those of the method among them, that have a value."""
    settings = dict(config["settings"])
    own = settings.pop("options")
    return in_force(settings | own)


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}\u202f%"


def _number(value: int) -> str:
    return f"{value:,}"


def _clean(text: Any) -> str:
    """Text without control characters and half characters, which no page can hold."""
    return "".join(c if c.isprintable() else "\ufffd" for c in str(text))
