"""Images in tar archives: the same domain as class folders, and archives that are refused."""

import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import dial
from dial import DialError
from dial.data.cache import read_cached
from dial.data.check import check
from dial.data.datasets import open_domain
from dial.data.domain import ImageFiles
from dial.data.folders import find_shards
from dial.data.members import ImageMembers

from ..conftest import CLASSES, SETTINGS, MakeImage


def pack(path: Path, files: Iterable[tuple[str, bytes]], *, mode: str = "w:") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def shards_of(folder: Path, into: Path, *, describe: Callable[[str], tuple[str, str]]) -> Path:
    """Write class folders as two archives; `describe` gives a label's suffix and its text."""
    images = sorted(folder.rglob("*.png"), key=lambda path: path.parts)
    for shard in range(2):
        files: list[tuple[str, bytes]] = []
        for number, image in enumerate(images[shard::2]):
            suffix, text = describe(image.parent.name)
            key = f"{shard}{number:05}"
            files += [(f"{key}.png", image.read_bytes()), (f"{key}.{suffix}", text.encode())]
        pack(into / f"shard-{shard:04}.tar", files)
    return into


def as_name(label: str) -> tuple[str, str]:
    return "cls", f"{label}\n"


def as_number(label: str) -> tuple[str, str]:
    return "json", json.dumps({"label": CLASSES.index(label), "camera": 3})


@pytest.fixture
def shards(folders: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The images of `folders`; labels are names in one domain, and numbers in the other."""
    bright, dark = folders
    source = shards_of(bright, tmp_path / "bright", describe=as_name)
    target = shards_of(dark, tmp_path / "dark", describe=as_number)
    (target / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    return source, target


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("method", ["frozen", "dial"])
def test_a_run_is_the_same_as_with_class_folders(
    method: str,
    use_cache: bool,
    folders: tuple[Path, Path],
    shards: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    settings = SETTINGS | {"method": method, "epochs": 1, "use_cache": use_cache}
    settings |= {"cache_dir": str(tmp_path / "cache")}
    patterns = shards[0] / "shard-{0000..0001}.tar", shards[1] / "*.tar"
    one, two = (
        dial.adapt(*pair, **settings, out=tmp_path / name)
        for pair, name in ((folders, "folders"), (patterns, "shards"))
    )
    weights, ours = (load_file(run.folder / "model.safetensors") for run in (one, two))
    assert all(torch.equal(ours[name], weights[name]) for name in weights)
    assert ours.keys() == weights.keys()
    assert one.history == two.history
    assert two.result["target_accuracy"] == one.result["target_accuracy"]
    input_ = json.loads((two.folder / "config.json").read_text())["input"]
    assert input_["source"] == str(patterns[0].resolve())


def test_the_domain_is_that_of_the_folders(
    folders: tuple[Path, Path], shards: tuple[Path, Path]
) -> None:
    for folder, archives in zip(folders, shards, strict=True):
        files, members = open_domain(folder), open_domain(archives)
        assert isinstance(files.images, ImageFiles)
        assert isinstance(members.images, ImageMembers)
        assert files.labels is not None
        assert members.labels is not None
        assert members.labels.counts == files.labels.counts
        contents = {members.images[row].read(): row for row in range(len(members.images))}
        for path, label in zip(files.images.paths, files.labels.indices, strict=True):
            assert members.labels.indices[contents[path.read_bytes()]] == label
        names = members.images.names
        assert names[0] == f"{archives}/shard-0000.tar/000000.png"
        assert len(set(names)) == len(names) == 33
        kept = [members.images.keys, members.images.places, members.labels.indices]
        assert sum(array.nbytes for array in kept) < 60 * len(names)
        some = members.images.take([3, 32])
        assert some.names == [names[3], names[32]]
        assert some.join([members.images]).names == [*some.names, *names]
        assert some.fingerprint != members.images.fingerprint
    assert open_domain(shards[1], unlabelled=True).labels is None
    report = check([open_domain(shards[0])], [open_domain(shards[1])], quiet=True)
    assert report.ok


def test_predictions_name_the_archive_and_the_image(
    shards: tuple[Path, Path], finished: dial.Run, folders: tuple[Path, Path]
) -> None:
    found = [*dial.predict(finished, [str(shards[1])])]
    assert found[0].path == f"{shards[1]}/shard-0000.tar/000000.png"
    expected = [item.label for item in dial.predict(finished, [str(folders[1])])]
    assert [item.label for item in found] == expected[::2] + expected[1::2]
    score = dial.evaluate(finished, str(shards[1])).accuracy
    assert score == pytest.approx(dial.evaluate(finished, str(folders[1])).accuracy)


def test_a_bad_image_is_named_and_a_changed_archive_is_read_again(
    tmp_path: Path, make_image: MakeImage
) -> None:
    good = make_image(tmp_path / "a.jpg").read_bytes()
    files = [("a/1.jpg", good), ("a/2.jpg", good[:-100]), ("a/3.heic", b"ftyp"), ("a/4.png", b"")]
    pack(tmp_path / "s" / "0.tar", files)
    images = open_domain(tmp_path / "s").images
    assert isinstance(images, ImageMembers)
    entry = read_cached(images, resize=8, cache_dir=tmp_path / "cache", quiet=True)
    assert entry.good.tolist() == [0]
    reasons = "truncated", "HEIC, a format that is not read here", "empty (zero bytes)"
    assert tuple(entry.bad.values()) == reasons
    again = make_image(tmp_path / "b.jpg", seed=1).read_bytes()
    pack(tmp_path / "s" / "0.tar", [("a/1.jpg", again)])
    images = open_domain(tmp_path / "s" / "0.tar").images
    assert isinstance(images, ImageMembers)
    new = read_cached(images, resize=8, cache_dir=tmp_path / "cache", quiet=True)
    assert not np.array_equal(new.digests[0], entry.digests[0])
    (tmp_path / "s" / "0.tar").write_bytes(b"")
    (image,) = images.decode(resize=8, channels=3, title="", quiet=True)
    assert "has become shorter" in str(image)


IMAGE = ("1.jpg", b"an image"), ("1.cls", b"mug")


def odd(kind: bytes, name: str = "2.jpg") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with tarfile.open(path, "w:") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)

    return write


def packed(*files: tuple[str, bytes], mode: str = "w:") -> Callable[[Path], None]:
    return lambda path: void(pack(path, files, mode=mode))


def void(_: object) -> None:
    """Returns nothing."""


def cut(size: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pack(path, IMAGE)
        path.write_bytes(path.read_bytes()[:size])

    return write


def damaged(path: Path) -> None:
    pack(path, IMAGE)
    content = bytearray(path.read_bytes())
    content[1024 + 100] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (packed(*IMAGE, mode="w:gz"), "got one that is compressed with gzip; fix: decompress it"),
        (packed(*IMAGE, mode="w:xz"), "compressed with xz"),
        (odd(tarfile.SYMTYPE), "got a link, 2.jpg; fix: write the files themselves"),
        (odd(tarfile.LNKTYPE), "got a link, 2.jpg"),
        (odd(tarfile.FIFOTYPE), "something else than a file, 2.jpg"),
        (packed(("../1.jpg", b"x")), r"got the name '\.\./1\.jpg'"),
        (packed(("/1.jpg", b"x")), "got the name '/1.jpg'"),
        (packed(("a/../../1.jpg", b"x")), "got the name 'a/../../1.jpg'"),
        (packed(("a\n.jpg", b"x")), "got the name 'a.*jpg'; fix: write shorter names, in UTF-8"),
        (packed(("\udcff.jpg", b"x")), "got the name '.*jpg'; fix: write shorter"),
        (packed(("a" * 2000 + ".jpg", b"x")), "got the name 'a*'; fix: write shorter"),
        (cut(700), "truncated or damaged"),
        (cut(516), "truncated or damaged"),
        (cut(1024), "truncated or damaged"),  # between two files
        (cut(2048), "truncated or damaged"),  # after the last one
        (cut(0), "truncated or damaged"),
        (damaged, "truncated or damaged"),
        (lambda path: void(path.write_text("not a tar" * 200)), "truncated or damaged"),
        (packed(*IMAGE, *IMAGE), "got two files 1.jpg; fix: write each KEY once"),
        (packed(*IMAGE, ("1.png", b"x")), "got two files 1.png"),
        (packed(*IMAGE, ("2.jpg", b"x")), "1 of 2 without: .*0.tar/2.jpg; fix: add the labels"),
        (packed(IMAGE[0], ("1.cls", b" \n")), "got no label in 1.cls"),
        (packed(IMAGE[0], ("1.cls", b"\xff\xfe")), "got no label in 1.cls"),
        (packed(IMAGE[0], ("1.json", b'{"class": 3}')), "got no label in 1.json"),
        (packed(IMAGE[0], ("1.json", b'{"label": tr')), "got no label in 1.json"),
        (packed(IMAGE[0], ("1.json", b'{"label": true}')), "got no label in 1.json"),
        (packed(("1.txt", b"x"), ("1.cls", b"x")), r"got none, only other files \(1 .txt\)"),
    ],
)
def test_archives_that_are_not_sound_are_refused(
    write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "0.tar")
    with pytest.raises(DialError, match=message):
        open_domain(tmp_path / "0.tar")


def test_labels_are_numbers_names_or_lines_of_a_file(tmp_path: Path) -> None:
    files = [(f"{n}.jpg", b"x") for n in range(3)]
    files += [("0.cls", b"10"), ("1.json", b'{"label": 9}'), ("2.cls", b"10")]
    files += [("2.json", b'{"label": "other"}'), ("notes.md", b"x"), ("1.seg.png", b"x")]
    path = pack(tmp_path / "0.tar", files)
    domain = open_domain(path)
    assert domain.labels is not None
    assert domain.labels.classes == ("9", "10")
    assert domain.labels.indices.tolist() == [1, 0, 1]
    assert domain.notes == ("2 files are not images and were ignored: 1 .md, 1 .seg.png",)
    (tmp_path / "classes.txt").write_text("".join(f"class {n}\n" for n in range(10)))
    with pytest.raises(DialError, match="got the label 10, which only 10 lines"):
        open_domain(path)
    (tmp_path / "classes.txt").write_text("".join(f"class {n}\n" for n in range(11)))
    labels = open_domain(path).labels
    assert labels is not None
    assert labels.classes == ("class 10", "class 9")
    (tmp_path / "classes.txt").write_text("a\na\n")
    with pytest.raises(DialError, match="got empty or equal lines"):
        open_domain(path)


def test_patterns(tmp_path: Path) -> None:
    for number in (8, 9, 10):
        pack(tmp_path / f"s-{number:03}.tar", IMAGE)
    names = [f"s-{number:03}.tar" for number in (8, 9, 10)]
    for pattern in ("s-{008..010}.tar", "s-*.tar", "s-0??.tar", ""):
        assert [path.name for path in find_shards(tmp_path / pattern)] == names
    with pytest.raises(DialError, match=r"got 1 of 4 that are not there: .*s-011\.tar"):
        find_shards(tmp_path / "s-{008..011}.tar")
    with pytest.raises(DialError, match="got none"):
        find_shards(tmp_path / "t-*.tar")
    with pytest.raises(DialError, match=r"which does not exist"):
        open_domain(tmp_path / "t-0.tar")
    (tmp_path / "photos").mkdir()
    assert find_shards(tmp_path) == []  # class folders, beside archives that are ignored
