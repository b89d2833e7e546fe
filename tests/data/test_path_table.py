"""Paths in a table: the same as a tuple of them, in a fraction of the memory."""

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.data.domain import ImageFiles
from dial.data.folders import read_list
from dial.data.path_table import PathTable

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@given(st.lists(NAMES, max_size=8), st.sampled_from([None, Path("photos"), Path("/data/a")]))
def test_a_table_is_a_tuple_of_paths(names: list[str], root: Path | None) -> None:
    table, paths = PathTable.of(names, root), tuple((root or Path()) / name for name in names)
    assert table == paths
    assert [*table] == [*paths]
    assert [table[row] for row in range(-len(paths), len(paths))] == [*paths, *paths]
    assert table[1:] == paths[1:]
    rows = [*range(len(paths) - 1, -1, -2)]
    assert table.take(rows) == table.take(np.array(rows, dtype=np.int64)) == paths[::-2]
    files = ImageFiles(table).join([ImageFiles(paths), ImageFiles(table.take(rows))])
    assert files.paths == paths + paths + paths[::-2]
    assert files.names == [*ImageFiles(paths + paths + paths[::-2]).names]
    assert pickle.loads(pickle.dumps(table)) == table
    with pytest.raises(IndexError):
        _ = table[len(paths)]


def test_each_path_once() -> None:
    texts = ["b", "a", "b", "./a", "c//d", "c/d", "b", "\udc80"]
    expected = tuple(dict.fromkeys(Path(text) for text in texts))
    assert PathTable.of(texts).distinct() == expected
    whole = PathTable.of(["a", "b"])
    assert whole.distinct() is whole


def test_paths_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dial.data.path_table.hash", lambda _: 7, raising=False)
    assert PathTable.of(["a", "b", "a", "c"]).distinct() == (Path("a"), Path("b"), Path("c"))


def test_a_long_list_takes_little_memory(tmp_path: Path) -> None:
    """With a Path for each line it is 600 bytes and more an image."""
    count, file = 100_000, tmp_path / "list.txt"
    lines = (f"class{row % 31:02}/image-{row:06}.jpg class{row % 31:02}\n" for row in range(count))
    file.write_text("".join(lines))
    read_list(file)  # imports and caches
    tracemalloc.start()
    try:
        domain = read_list(file)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert domain.labels is not None
    assert len(domain.images) == len(domain.labels.indices) == count
    assert domain.images.names[17] == str(tmp_path / "class17/image-000017.jpg")
    assert domain.labels.classes[domain.labels.indices[32]] == "class01"
    assert kept < 60 * count
    assert peak < 120 * count
