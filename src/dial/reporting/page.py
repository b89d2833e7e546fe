"""The page of a report: figures, pictures and texts from a run's records, as HTML."""

import base64
import hashlib
import itertools
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from dial.reporting import candidates, classes, metrics, next_steps, plots
from dial.reporting.gallery import GALLERY, by_certainty, by_change
from dial.reporting.places import is_shareable, shareable_names, shareable_settings
from dial.reporting.record import Record

_OPEN_TABLE = 12  # classes up to which the table of classes is not folded away
_CHANGED = 6  # images in the gallery of changes where fewer have another label than before
_UNCERTAIN = 24  # images in the gallery of the least certain, beside the one of changes
_PIXELATED = 64  # pixels of a thumbnail below which it is enlarged without smoothing
_NOT_LOSSES = ("epoch", "step", "lr", "target_accuracy", "target_classes_predicted")
_THIN = "\u202f"  # a space that breaks no line

Context = dict[str, Any]


def render(
    record: Record, *, config: Context, result: Context, history: list[Context], folder: Path
) -> str:
    """Returns the page; every text in it is escaped, and no path in it is absolute.

    `folder` is the run's, as the user names it.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    summary = _summary(record, result)
    environment.filters |= {"percent": _percent, "number": _number, "clean": _clean}
    template, script = (
        files("dial.reporting").joinpath(name).read_text(encoding="utf-8")
        for name in ("report.html.jinja", "report.js")
    )
    return environment.from_string(template).render(
        result=result,
        source=shareable_names(result["source"]),
        target=shareable_names(result["target"]),
        config=config,
        record=record,
        compared="before" in record.predicted,
        summary=summary,
        estimate=_estimate(result),
        noticed=_noticed(record, result),
        steps=next_steps.next_steps(folder, measured=record.labels is not None),
        place=None if is_shareable(str(folder)) else folder.name,
        candidates=candidates.describe(result),
        kept=candidates.about_kept(result),
        curves=_curves(history),
        shift=_shift(record),
        mixing=plots.mixing(result["mixing"]) if result.get("mixing") else None,
        embeddings=_embeddings(record),
        classes=_classes(record),
        galleries=_galleries(record, changed=summary["changed"]),
        settings=shareable_settings(config["settings"]),
        repeat=next_steps.repeat(folder),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _summary(record: Record, result: Context) -> Context:
    after, labels = record.predicted["after"], record.labels
    before, comparison = record.predicted.get("before"), None
    if before is not None and labels is not None:
        comparison = metrics.compare(before, after, labels)
    doubts = metrics.doubts(
        record.source_counts,
        after,
        confidence=record.confidence["after"],
        comparison=comparison,
        is_judged="warnings" in result,
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


def _estimate(result: Context) -> Context:
    """Returns the estimate without labels: an interval, or why there is none.

    A single number is shown for runs from before there were intervals, and for no others.
    """
    interval, reason = result.get("estimated_interval"), result.get("no_estimate")
    is_older = "estimated_interval" not in result and not reason
    return {
        "interval": interval,
        "point": result.get("estimated_accuracy") if is_older else None,
        "doubt": result.get("estimate_doubt"),
        "reason": reason,
        "missing": interval is None and not is_older,
    }


def _noticed(record: Record, result: Context) -> Context:
    """Returns sentences about classes that seem to be absent or confused."""
    after, confidence = record.predicted["after"], record.confidence["after"]
    absent = result.get("absent_classes") or ()
    confused = None  # not known to older runs
    if record.runner_up is not None and record.runner_up_confidence is not None:
        confused = classes.confused(
            record.classes,
            after,
            confidence,
            runner_up=record.runner_up,
            runner_up_confidence=record.runner_up_confidence,
        )
    missing = classes.missing(record.classes, record.source_counts, after, absent=absent)
    return {"missing": missing, "confused": confused}


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


def _galleries(record: Record, *, changed: int) -> Context:
    """The images that changed most, if there is a comparison, and the least certain ones.

    Where few images have `changed` their label, few with the same one are shown beside them.
    """
    compared = "before" in record.predicted
    order: Iterable[int] = ()
    if compared:
        order = by_change(record.predicted, record.confidence)
    uncertain = by_certainty(record.confidence["after"], record.runner_up_confidence)
    return {
        "changed": _cards(record, order, min(GALLERY, max(changed, _CHANGED))),
        "uncertain": _cards(record, uncertain, _UNCERTAIN if compared else GALLERY),
        "small": record.gallery_side < _PIXELATED,
        "kept": len(record.gallery_names),
    }


def _cards(record: Record, order: Iterable[int], count: int) -> list[Context]:
    """Returns the first images in an order that the run kept, with what is predicted for them."""
    rows = (row for row in order if str(row) in record.gallery_names)
    return [_card(record, int(row)) for row in itertools.islice(rows, count)]


def _card(record: Record, row: int) -> Context:
    code = base64.b64encode(record.gallery_pictures[str(row)].tobytes()).decode()
    card = {
        "name": record.gallery_names[str(row)],
        "image": f"data:image/jpeg;base64,{code}",
        "label": None if record.labels is None else record.classes[record.labels[row]],
        "second": None,
    }
    for key, predicted in record.predicted.items():
        card[key] = record.classes[predicted[row]]
        card[f"confidence_{key}"] = _percent(float(record.confidence[key][row]), 0)
    if record.runner_up is not None and record.runner_up_confidence is not None:
        card["second"] = record.classes[record.runner_up[row]]
        card["confidence_second"] = _percent(float(record.runner_up_confidence[row]), 0)
    return card


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}{_THIN}%"


def _number(value: int) -> str:
    return f"{value:,}"


def _clean(text: Any) -> str:
    """Returns text without control characters and lone surrogates, which no page can hold."""
    return "".join(c if c.isprintable() or c == _THIN else "\ufffd" for c in str(text))
