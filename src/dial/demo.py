"""The embedded digits from end to end: without adaptation, with new statistics, with DIAL."""

import tempfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from dial.deployment.runs import Run
from dial.pipeline import adapt
from dial.reporting.report import report

SOURCE, TARGET = "digits:mnist", "digits:optdigits"
METHODS = {
    "source_only": "trained on MNIST alone",
    "adabn": "with the target's statistics",
    "dial": "with DA-layers and target entropy",
}
NEXT = """The same with your own folders (SOURCE has a folder of images for each class):
  dial check SOURCE TARGET
  dial adapt SOURCE TARGET --out RUN
  dial predict RUN IMAGES --out predictions.csv"""


def demonstrate(*, out: Path | None = None, seed: int = 0, quiet: bool = False) -> list[Run]:
    """Train three methods on the digits, and show what each makes of the unlabelled ones."""
    folder = out or Path(tempfile.mkdtemp(prefix="dial-demo-"))
    runs = [
        adapt(SOURCE, TARGET, out=folder / name, method=name, seed=seed, quiet=quiet, resume=True)
        for name in METHODS
    ]
    console = Console()
    table = Table(
        title="MNIST -> optdigits: 5,000 labelled digits, 1,797 others without labels",
        box=box.ROUNDED if console.is_terminal else box.SIMPLE,
    )
    table.add_column("method")
    table.add_column("")
    table.add_column("target accuracy", justify="right")
    table.add_column("seconds", justify="right")
    for run, (name, about) in zip(runs, METHODS.items(), strict=True):
        accuracy = f"{run.result['target_accuracy']:.1%}"
        table.add_row(name, about, accuracy, f"{run.result['seconds']:.0f}")
    console.print(table)
    page = report(folder / "dial", baseline=folder / "source_only")
    console.print(f"What changed, on one page: {page}\n", highlight=False, soft_wrap=True)
    console.print(NEXT, highlight=False, markup=False)
    return runs
