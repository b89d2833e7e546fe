"""The parallel pass: order, every bad file in one message, progress."""

import threading
from pathlib import Path

import pytest

from dial.data import progress
from dial.data.decode import BadImage, GoodImage
from dial.data.reading import bad_files_error, read_all

from ..conftest import MakeImage


def test_order_is_kept_whatever_the_number_of_threads(
    tmp_path: Path, make_image: MakeImage
) -> None:
    paths = [make_image(tmp_path / f"{n}.png", seed=n, size=(10 + n, 9)) for n in range(70)]
    for threads in (1, 3):
        images = list(read_all(paths, resize=4, threads=threads, quiet=True))
        widths = [image.width for image in images if isinstance(image, GoodImage)]
        assert widths == [10 + n for n in range(70)]


def test_more_than_one_thread_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=10)  # breaks if the two do not meet

    def meet(path: Path, **_: object) -> BadImage:
        together.wait()
        return BadImage(path.name)

    monkeypatch.setattr("dial.data.reading.read_image", meet)
    images = read_all([Path("a"), Path("b")], resize=4, threads=2, quiet=True)
    assert list(images) == [BadImage("a"), BadImage("b")]


def test_message_counts_kinds_and_lists_all_paths() -> None:
    bad = {Path("a.jpg"): "truncated", Path("b b.jpg"): "truncated", Path("c.png"): "empty"}
    message = str(bad_files_error(bad, total=9))
    assert "(9 files), got 3 bad: 2 truncated; 1 empty" in message
    assert "pass --skip-bad (skip_bad=True) to go on without them:\n" in message
    assert message.splitlines()[1:] == [f"  {path}: {reason}" for path, reason in bad.items()]


def test_very_many_bad_files_do_not_flood() -> None:
    bad = {Path(f"{n}.jpg"): "truncated" for n in range(1000)}
    assert "... and 800 more" in str(bad_files_error(bad, total=1000))


def test_log_gets_plain_lines_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress.track("ab", total=2, doing="reading [amazon]")) == ["a", "b"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("reading [amazon]: 1 of 2 images")
    assert err.count("\n") == 2


def test_quick_passes_leave_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.track("ab", total=2, doing="reading")) == ["a", "b"]
    assert capsys.readouterr().err == ""
