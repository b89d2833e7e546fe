"""Folders that are removed or renamed while a run goes on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import dial
from dial import DialError
from dial.data import cache
from dial.data.datasets import open_domain
from dial.data.domain import ImageFiles
from dial.data.prepare import prepare

from ..conftest import SETTINGS


@pytest.fixture
def copies(folders: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The two domains once more, to be taken away."""
    source, target = (shutil.copytree(each, tmp_path / each.name) for each in folders)
    return Path(source), Path(target)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    return SETTINGS | {"out": tmp_path / "run", "cache_dir": str(tmp_path / "cache")}


def remove(path: Path) -> None:
    shutil.rmtree(path)


def rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name} elsewhere"))


class Once:
    """Takes a folder away after the first epoch."""

    def __init__(self, take: Callable[[Path], None], path: Path) -> None:
        self.take, self.path, self.epochs = take, path, 0

    def __call__(self, record: dict[str, Any]) -> None:
        self.epochs += 1
        if self.epochs == 1:
            self.take(self.path)


@pytest.mark.parametrize("take", [remove, rename])
@pytest.mark.parametrize("name", ["bright", "dark", "cache", "run"])
def test_a_run_ends_as_if_nothing_had_happened(
    name: str,
    take: Callable[[Path], None],
    copies: tuple[Path, Path],
    given: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = dial.adapt(*copies, **given | {"out": tmp_path / "whole"})
    with patch("dial.console.Reporter.epoch", side_effect=Once(take, tmp_path / name)) as epoch:
        run = dial.adapt(*copies, **given | {"quiet": False})
    assert epoch.call_count == 2
    assert {p.name for p in run.folder.iterdir()} == {p.name for p in whole.folder.iterdir()}
    for file in ("model.safetensors", "outputs.safetensors"):
        assert (run.folder / file).read_bytes() == (whole.folder / file).read_bytes()
    told = capsys.readouterr().err
    assert ("was removed; what comes now is in a new one" in told) == (name == "run")


def test_images_that_are_decoded_again_and_again_are_missed(
    copies: tuple[Path, Path], given: dict[str, Any], tmp_path: Path
) -> None:
    given |= {"use_cache": False}
    whole = dial.adapt(*copies, **given | {"out": tmp_path / "whole"})
    with (
        patch("dial.console.Reporter.epoch", side_effect=Once(rename, copies[0])),
        pytest.raises(DialError, match="cannot be read: No such file or directory"),
    ):
        dial.adapt(*copies, **given)
    with pytest.raises(DialError, match="bright', which does not exist"):
        dial.adapt(*copies, **given, resume=True)
    copies[0].with_name("bright elsewhere").rename(copies[0])
    run = dial.adapt(*copies, **given, resume=True)
    model = "model.safetensors"
    assert (run.folder / model).read_bytes() == (whole.folder / model).read_bytes()


def test_files_that_vanish_between_listing_and_reading(copies: tuple[Path, Path]) -> None:
    domain = open_domain(copies[0])
    remove(copies[0] / "square")
    with pytest.raises(DialError, match="11 bad: 11 cannot be read: No such file or directory"):
        prepare([domain], resize=8, use_cache=False, quiet=True)


def test_a_cache_that_goes_while_it_is_built(
    copies: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = ImageFiles(tuple(sorted(copies[0].rglob("*.png"))))
    root, describe = tmp_path / "cache", cache.describe

    def then_remove(folder: Path, about: dict[str, str]) -> None:
        describe(folder, about)
        remove(root)

    monkeypatch.setattr(cache, "describe", then_remove)
    with pytest.raises(DialError, match=r"got No such file or directory in .*--cache-dir"):
        cache.read_cached(images, resize=8, cache_dir=root, quiet=True)
