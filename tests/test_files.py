"""Files replaced in one go, with the rights of any other file."""

import os
import stat
from pathlib import Path

import pytest

from dial import DialError, files


def test_the_old_content_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    files.write_text(path, "first")

    def fail(out: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write(path, fail)
    assert path.read_text() == "first"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_others_may_read_it_where_the_users_mask_says_so(tmp_path: Path) -> None:
    for mask in (0o022, 0o077):
        former = os.umask(mask)
        try:
            files.write_json(tmp_path / "a.json", {"a": 1})
        finally:
            os.umask(former)
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~mask


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DialError, match="a file where its folder should be"):
        files.write_text(tmp_path / "file" / "a", "")
