"""Accuracy on held-out source images, counted one by one."""

from dial.selection import validators

from .small import make


def test_source_accuracy() -> None:
    outputs = make()
    held_out = outputs.require_held_out()
    pairs = zip(held_out.logits, held_out.labels, strict=True)
    right = sum(max(range(4), key=row.__getitem__) == label for row, label in pairs)
    assert validators.score("source_accuracy", outputs) == right / 40
