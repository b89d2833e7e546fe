"""The page of a report: figures, pictures and texts from a run's records, as HTML."""

import base64
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from dial.reporting import metrics, plots
from dial.reporting.record import GALLERY, Record, gallery_order

_OPEN_TABLE = 12  # classes up to which the table of classes is not folded away
_PIXELATED = 64  # pixels of a thumbnail below which it is enlarged without smoothing
_NOT_LOSSES = ("epoch", "step", "lr", "target_accuracy", "target_classes_predicted")

Context = dict[str, Any]


def render(record: Record, *, config: Context, result: Context, history: list[Context]) -> str:
    """Returns the page; every text in it is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": _percent, "number": _number, "clean": _clean}
    template = files("dial.reporting").joinpath("report.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        result=result,
        config=config,
        record=record,
        compared="before" in record.predicted,
        summary=_summary(record),
        curves=_curves(history),
        shift=_shift(record),
        mixing=plots.mixing(result["mixing"]) if result.get("mixing") else None,
        embeddings=_embeddings(record),
        classes=_classes(record),
        gallery=_gallery(record),
        settings=_settings(config["settings"]),
        repeat="dial adapt --config RUN/config.json --out NEW",
    )


def _summary(record: Record) -> Context:
    after, labels = record.predicted["after"], record.labels
    before, comparison = record.predicted.get("before"), None
    if before is not None and labels is not None:
        comparison = metrics.compare(before, after, labels)
    doubts = metrics.doubts(
        record.source_counts, after, confidence=record.confidence["after"], comparison=comparison
    )
    return {
        "images": len(after),
        "changed": 0 if before is None else int((before != after).sum()),
        "used": len(np.unique(after)),
        "confidence": {key: float(values.mean()) for key, values in record.confidence.items()},
        "accuracy": None if labels is None else float(np.mean(after == labels)),
        "comparison": comparison,
        "doubts": doubts,
    }


def _curves(history: list[Context]) -> list[Context]:
    """Losses, accuracy on the target if it has labels, and learning rate."""
    # A term may come later than the first epoch; without training there is none.
    terms = {name: value for line in history for name, value in line.items()}
    losses = [n for n, v in terms.items() if n not in _NOT_LOSSES and isinstance(v, float)]
    groups = {
        "Losses, averaged over each epoch": losses,
        "Target accuracy of up to 500 images (labels for scoring only)": ["target_accuracy"],
        "Learning rate": ["lr"],
    }
    pictures = []
    for title, names in groups.items():
        series = {
            name.replace("_", " "): [
                (line["epoch"], line[name]) for line in history if name in line
            ]
            for name in names
            if name in terms
        }
        if series:
            picture = plots.curves(series, title=title, percent="target_accuracy" in names)
            pictures.append({"title": title, "picture": picture})
    return pictures


def _shift(record: Record) -> Context:
    """Pictures and a table of the distances between the domains at the normalization layers."""
    if not record.layers:
        return {"pictures": [], "rows": []}
    names = {"after": "this network"}
    if "before" in record.shift:  # the run's own, even if the page shows a baseline
        names = {"before": "source's statistics", "after": "each domain's own"}
    axes = {
        "Where the values lie": "difference of means, in deviations",
        "How far they spread": "log ratio of deviations",
    }
    pictures = []
    for column, (title, axis) in enumerate(axes.items()):
        series = {name: record.shift[key][:, column] for key, name in names.items()}
        picture = plots.distances(record.layers, series, axis=axis)
        pictures.append({"title": title, "picture": picture})
    rows = np.concatenate([record.shift[key] for key in names], axis=1).tolist()
    return {"pictures": pictures, "rows": list(zip(record.layers, rows, strict=True))}


def _embeddings(record: Record) -> list[Context]:
    """A picture of the hidden features and one of the outputs, without and with adaptation."""
    names = {"after": "this network"}
    if "before" in record.predicted:
        names = {"before": "without adaptation", "after": "with adaptation"}
    pictures: list[Context] = []
    if not record.points:  # without a source there is nothing to see beside the target
        return pictures
    for layer, about in {"features": "Hidden features", "outputs": "Outputs"}.items():
        for predictor, name in names.items():
            key, title = f"{predictor}.{layer}", f"{about}, {name}"
            source, target = (record.points[f"{key}.{domain}"] for domain in ("source", "target"))
            separation = record.separation[key]
            picture = plots.embedding(source, target, separation=separation, title=title)
            caption = f"{title}: separation {_percent(separation, 0)}"
            pictures.append({"title": caption, "picture": picture})
    return pictures


def _classes(record: Record) -> Context:
    """The confusion matrix, the class balance, and a table row for each class."""
    before, after = record.predicted.get("before"), record.predicted["after"]
    labels, count = record.labels, len(record.classes)
    matrix = None
    if labels is not None:
        matrix = plots.matrix(metrics.confusion(after, labels, count), record.classes)
    balance = plots.balance(
        record.classes,
        source=metrics.shares(record.source_counts),
        after=metrics.predicted_shares(after, count),
        before=None if before is None else metrics.predicted_shares(before, count),
    )
    rows = metrics.per_class(
        record.classes, record.source_counts, before=before, after=after, labels=labels
    )
    return {
        "matrix": matrix,
        "wide": _OPEN_TABLE < count <= plots.NAMED,
        "named": count <= plots.NAMED,
        "balance": balance,
        "rows": rows,
        "open": count <= _OPEN_TABLE,
    }


def _gallery(record: Record) -> Context:
    """Images whose prediction changed most, or the least confident without a comparison."""
    order = gallery_order(record.predicted, record.confidence).tolist()
    cards = []
    for row in [row for row in order if str(row) in record.gallery_names][:GALLERY]:
        code = base64.b64encode(record.gallery_pictures[str(row)].tobytes()).decode()
        card = {
            "name": record.gallery_names[str(row)],
            "image": f"data:image/jpeg;base64,{code}",
            "label": None if record.labels is None else record.classes[record.labels[row]],
        }
        for key, predicted in record.predicted.items():
            card[key] = record.classes[predicted[row]]
            card[f"confidence_{key}"] = _percent(float(record.confidence[key][row]), 0)
        cards.append(card)
    kept = len(record.gallery_names)
    return {"cards": cards, "small": record.gallery_side < _PIXELATED, "kept": kept}


def _settings(settings: Context) -> list[tuple[str, Any]]:
    """Returns all settings that have a value, the method's own last; no epochs beside steps."""
    general = {name: value for name, value in settings.items() if name != "options"}
    if general.get("steps") is not None:
        general.pop("epochs", None)
    pairs = (*general.items(), *settings["options"].items())
    return [(name, value) for name, value in pairs if value is not None]


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}\u202f%"


def _number(value: int) -> str:
    return f"{value:,}"


def _clean(text: Any) -> str:
    """Returns text without control characters and lone surrogates, which no page can hold."""
    return "".join(c if c.isprintable() else "\ufffd" for c in str(text))
