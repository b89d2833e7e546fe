"""Settings of DIAL compared on two transfers of Office-31, an easy one and a hard one.

    python -m benchmarks.variants --out runs/variants --data DATA

trains the runs that are missing, `OUT/<task>/<variant>/`, and prints the table of all finished
ones: the target accuracy of the finished model, and after the last epoch (on 500 images, before
the target's statistics were computed again). The table compares settings by target labels: to
choose by it is an oracle's choice on these two transfers. `--tables` trains nothing.
"""

import argparse
from pathlib import Path
from typing import Any

import dial
from dial.deployment.runs import read_records

EARLY = ("conv_stem", "bn1", "blocks.0", "blocks.1", "blocks.2")  # of EfficientNet-Lite
TASKS = {
    "A-W": ("office31:amazon", "office31:webcam"),
    "W-A": ("office31:webcam", "office31:amazon"),
}
BASE: dict[str, Any] = {"backbone": "efficientnet_lite0", "image_size": 128, "steps": 200}
BASE |= {"method": "dial", "reference": "anchored", "entropy": 0.2, "batch_size": "32+16"}
BASE |= {"lr": 3e-3, "frozen": (), "holdout": 0.0, "seed": 0, "centroids": False}
BASE |= {"start": "random", "head": False, "pseudo_labels": 0.0}
SOURCE: dict[str, Any] = {"method": "source_only", "reference": None, "entropy": None}
SOURCE |= {"centroids": None, "head": None, "pseudo_labels": None}
ANCHOR: dict[str, Any] = {"frozen": EARLY, "reference": "anchored:0.1"}
CHOSEN: dict[str, Any] = ANCHOR | {"batch_size": "24+24"}

VARIANTS: dict[str, dict[str, Any]] = {
    "source only, frozen statistics": SOURCE,
    "base": {},
    "lr 1e-2": {"lr": 1e-2},
    "entropy 0.5, warm-up 0.5": {"entropy": 0.5, "warmup": 0.5},
    "batches 24+24": {"batch_size": "24+24"},
    "anchor 0.5": {"reference": "anchored:0.5"},
    "frozen up to the third stage": {"frozen": EARLY},
    "frozen, lr 3e-4, head 100x": {"frozen": EARLY, "lr": 3e-4, "new_rate": 100.0},
    "frozen, anchor 0.1": ANCHOR,
    "frozen, anchor 0.1, 16+32": ANCHOR | {"batch_size": "16+32"},
    "frozen, anchor 0.1, 24+24": CHOSEN,
    "frozen, anchor 0.1, 24+24, centroids": CHOSEN | {"centroids": True},
    "frozen, anchor 0.1, 24+24, centroids, start probe": CHOSEN
    | {"centroids": True, "start": "probe"},
    "frozen, anchor 0.1, 24+24, cosine": CHOSEN | {"schedule": "cosine"},
    "frozen, anchor 0.1, 24+24, entropy 0.1": CHOSEN | {"entropy": 0.1},
    "frozen, anchor 0.1, 24+24, entropy 0.4": CHOSEN | {"entropy": 0.4},
    "frozen, anchor 0.05, 24+24": CHOSEN | {"reference": "anchored:0.05"},
    "frozen, anchor 0.1, 24+24, 400 steps": CHOSEN | {"steps": 400},
    "frozen, anchor 0.1, 24+24, no DA-layer on the logits": CHOSEN | {"align_logits": False},
}


def folder_of(out: Path, task: str, name: str) -> Path:
    """Returns the folder of a variant's run."""
    return out / task / name.replace(",", "").replace(" ", "-")


def table(out: Path) -> str:
    """Returns a Markdown table of all finished runs."""
    heads = ["variant", *TASKS, *(f"{task}, last epoch" for task in TASKS)]
    lines = [heads, ["---"] * len(heads)]
    for name in VARIANTS:
        folders = [folder_of(out, task, name) for task in TASKS]
        if any((folder / "result.json").exists() for folder in folders):
            ends, epochs = zip(*map(_accuracies, folders), strict=True)
            lines.append([name, *ends, *epochs])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _accuracies(folder: Path) -> tuple[str, str]:
    """Returns the accuracies of the finished model and after the last epoch, in percent."""
    if not (folder / "result.json").exists():
        return "-", "-"
    result, history = read_records(folder)
    end, epoch = (100 * record["target_accuracy"] for record in (result, history[-1]))
    return f"{end:.1f}", f"{epoch:.1f}"


def main() -> None:
    """Train the missing runs and print the table."""
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
            options = BASE | VARIANTS[name]
            options |= {"data": arguments.data, "cache_dir": arguments.cache_dir, "report": False}
            source, target = TASKS[task]
            dial.adapt(
                source, target, out=folder_of(arguments.out, task, name), resume=True, **options
            )
    print(table(arguments.out))


if __name__ == "__main__":
    main()
