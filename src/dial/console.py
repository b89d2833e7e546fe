"""What a run shows: a bar in a terminal, with losses and time left; in a log a line an epoch."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Reporter:
    """Tells on standard error how a training goes."""

    def __init__(self, *, quiet: bool, title: str, scores: bool = True) -> None:
        self.quiet, self.title = quiet, title
        self._scores = scores  # a choice among trials is not to be made by them
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self._bar: Progress | None = None
        self._task: Any = None
        self._warned: set[str] = set()

    def __enter__(self) -> "Reporter":
        if self.console.is_terminal and not self.quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[losses]}"),
                console=self.console,
                transient=True,
            )
            self._bar.start()
        else:
            self.say(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def step(self, progress: Any, total: int, terms: dict[str, float]) -> None:
        """After each step."""
        if self._bar is None:
            return
        losses = "  ".join(f"{name} {value:.3f}" for name, value in terms.items())
        if self._task is None:
            self._task = self._bar.add_task(self.title, total=total, rate="", losses="")
        task = self._bar.tasks[0]
        rate = f"{task.speed:.1f} steps/s" if task.speed else ""
        self._bar.update(self._task, completed=progress.step, losses=losses, rate=rate)

    def epoch(self, record: dict[str, Any]) -> None:
        """After each epoch."""
        shown = [f"epoch {record['epoch']}", f"step {record['step']}"]
        for name, value in record.items():
            if name == "target_accuracy" and self._scores:
                shown.append(f"target accuracy {value:.1%}")
            elif isinstance(value, float) and name != "target_accuracy":
                shown.append(f"{name} {value:.4g}")
        self.say("  ".join(shown))

    def warn(self, message: str) -> None:
        """A warning, once."""
        if message not in self._warned:
            self._warned.add(message)
            self.say(f"dial: warning: {message}")

    def finished(self, result: dict[str, Any], folder: Path) -> None:
        """At the end."""
        if not self._scores:
            self.say(f"finished in {result['seconds']:.0f} s")
            return
        accuracy = result["target_accuracy"]
        told = "no labels to score with" if accuracy is None else f"target accuracy {accuracy:.1%}"
        estimate = result.get("estimated_accuracy")
        if estimate is not None:
            doubt = " (unreliable)" if "estimate_doubt" in result else ""
            told += f", estimated without labels {estimate:.1%}{doubt}"
        for warning in result.get("warnings", ()):
            self.warn(warning)
        self.say(f"finished in {result['seconds']:.0f} s: {told}; {folder}")

    def say(self, text: str) -> None:
        """One plain line."""
        self.console.print(text, markup=False, soft_wrap=True)
