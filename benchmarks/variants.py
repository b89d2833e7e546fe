"""What makes DIAL better on Office-31: settings changed one at a time, on an easy and a hard way.

    python -m benchmarks.variants --out runs/variants --data DATA

makes the runs that are missing, `OUT/<task>/<variant>/`, and prints the table of all that are
there: the target accuracy after the last step, and before the target's statistics were taken
anew at the end (of 500 images). The table compares settings by target labels: what is chosen by
it is an oracle's choice on these two transfers. `--tables` trains nothing.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import dial

TASKS = {
    "A-W": ("office31:amazon", "office31:webcam"),
    "W-A": ("office31:webcam", "office31:amazon"),
}
BASE: dict[str, Any] = {"backbone": "efficientnet_lite0", "image_size": 128, "steps": 200}
BASE |= {"method": "dial", "lr": 3e-3, "entropy": 0.2, "holdout": 0.0, "seed": 0}
EARLY = ("conv_stem", "bn1", "blocks.0", "blocks.1", "blocks.2")
SOURCE: dict[str, Any] = {"method": "source_only", "entropy": None}

VARIANTS: dict[str, dict[str, Any]] = {
    "source only, frozen statistics": SOURCE,
    "base": {},
    "lr 1e-2": {"lr": 1e-2},
    "lr 1e-3": {"lr": 1e-3},
    "entropy 0.1": {"entropy": 0.1},
    "entropy 0.5": {"entropy": 0.5},
    "entropy 0.5, warm-up 0.5": {"entropy": 0.5, "warmup": 0.5},
    "batches 24+24": {"batch_size": "24+24"},
    "batches 16+32": {"batch_size": "16+32"},
    "anchor 0.1": {"reference": "anchored:0.1"},
    "anchor 0.5": {"reference": "anchored:0.5"},
    "no DA-layer on the logits": {"align_logits": False},
    "frozen up to the third stage": {"frozen": EARLY},
    "cosine": {"schedule": "cosine"},
    "head at the same rate": {"new_rate": 1.0},
    "400 steps": {"steps": 400},
    "frozen, anchor 0.1": {"frozen": EARLY, "reference": "anchored:0.1"},
    "frozen, anchor 0.05": {"frozen": EARLY, "reference": "anchored:0.05"},
    "frozen, anchor 0.1, 24+24": {
        "frozen": EARLY,
        "reference": "anchored:0.1",
        "batch_size": "24+24",
    },
    "frozen, anchor 0.1, 24+24, cosine": {
        "frozen": EARLY,
        "reference": "anchored:0.1",
        "batch_size": "24+24",
        "schedule": "cosine",
    },
    "frozen, anchor 0.1, 24+24, inverse": {
        "frozen": EARLY,
        "reference": "anchored:0.1",
        "batch_size": "24+24",
        "schedule": "inverse",
    },
    "frozen, anchor 0.1, 24+24, cosine, entropy 0.1": {
        "frozen": EARLY,
        "reference": "anchored:0.1",
        "batch_size": "24+24",
        "schedule": "cosine",
        "entropy": 0.1,
    },
    "frozen, anchor 0.1, 24+24, cosine, entropy 0.4": {
        "frozen": EARLY,
        "reference": "anchored:0.1",
        "batch_size": "24+24",
        "schedule": "cosine",
        "entropy": 0.4,
    },
    "frozen, anchor 0.1, 16+32": {
        "frozen": EARLY,
        "reference": "anchored:0.1",
        "batch_size": "16+32",
    },
    "frozen, anchor 0.05, 16+32": {
        "frozen": EARLY,
        "reference": "anchored:0.05",
        "batch_size": "16+32",
    },
    "frozen, no DA-layer on the logits": {"frozen": EARLY, "align_logits": False},
    "frozen, lr 1e-3, head 30x": {"frozen": EARLY, "lr": 1e-3, "new_rate": 30.0},
    "frozen, lr 3e-4, head 100x": {"frozen": EARLY, "lr": 3e-4, "new_rate": 100.0},
    "source only, lr 3e-4, head 100x": SOURCE | {"lr": 3e-4, "new_rate": 100.0},
}


def folder_of(out: Path, task: str, name: str) -> Path:
    """Where the run of a variant is."""
    return out / task / name.replace(",", "").replace(" ", "-")


def table(out: Path) -> str:
    """All finished runs, as Markdown."""
    heads = ["variant", "settings", *TASKS, *(f"{task}, last epoch" for task in TASKS)]
    lines = [heads, ["---"] * len(heads)]
    for name, changes in VARIANTS.items():
        folders = [folder_of(out, task, name) for task in TASKS]
        if any((folder / "result.json").exists() for folder in folders):
            settings = ", ".join(f"{key}={value}" for key, value in changes.items())
            ends, epochs = (list(map(measured, folders)) for measured in (_at_end, _last_epoch))
            lines.append([name, f"`{settings}`" if settings else "", *ends, *epochs])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _at_end(folder: Path) -> str:
    path = folder / "result.json"
    return _percent(json.loads(path.read_text())["target_accuracy"]) if path.exists() else "-"


def _last_epoch(folder: Path) -> str:
    path = folder / "metrics.jsonl"
    if not path.exists():
        return "-"
    return _percent(json.loads(path.read_text().splitlines()[-1])["target_accuracy"])


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> None:
    """Make what is missing, and the table of all that is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--cache-dir", help="where decoded images are kept")
    parser.add_argument("--tasks", nargs="+", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--variants", nargs="+", default=[*VARIANTS], choices=[*VARIANTS])
    parser.add_argument("--tables", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    for name in [] if arguments.tables else arguments.variants:
        for task in arguments.tasks:
            given = BASE | VARIANTS[name]
            given |= {"data": arguments.data, "cache_dir": arguments.cache_dir, "report": False}
            source, target = TASKS[task]
            dial.adapt(
                source, target, out=folder_of(arguments.out, task, name), resume=True, **given
            )
    print(table(arguments.out))


if __name__ == "__main__":
    main()
