"""Formats, colour modes, rotation and everything that can be wrong with a file."""

import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, features

from dial.data.decode import (
    BadImage,
    GoodImage,
    bad_files_error,
    read_image,
    read_images,
    strict_pillow,
)

from ..conftest import MakeImage

RED, HALF = (200, 30, 60), (228, 142, 158)  # HALF: RED at half strength on white


def pixel(path: Path, *, channels: int = 3) -> list[int]:
    """The middle pixel as we read it."""
    image = read_image(path, resize=9, channels=channels)
    assert isinstance(image, GoodImage), image
    assert image.pixels.shape == (9, 9, channels)
    assert image.pixels.dtype == np.uint8
    return [int(value) for value in image.pixels[4, 4]]


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp", "tif", "gif"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    if suffix == "webp" and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (20, 16), RED).save(path)
    assert np.allclose(pixel(path), RED, atol=4)


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert pixel(tmp_path / "a.gif") == list(RED)


def palette_with_alpha() -> Image.Image:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, *RED])
    image.info["transparency"] = bytes([255, 128])
    return image


MODES: dict[str, tuple[Image.Image, tuple[int, int, int]]] = {
    "bilevel": (Image.new("1", (8, 8), 1), (255, 255, 255)),
    "grey": (Image.new("L", (8, 8), 77), (77, 77, 77)),
    "grey alpha": (Image.new("LA", (8, 8), (77, 0)), (255, 255, 255)),
    "palette": (Image.new("RGB", (8, 8), RED).quantize(4), RED),
    "palette alpha": (palette_with_alpha(), HALF),
    "alpha": (Image.new("RGBA", (8, 8), (*RED, 128)), HALF),
    "16 bits": (Image.fromarray(np.full((8, 8), 257 * 77, dtype=np.uint16)), (77, 77, 77)),
    "16 bits full": (Image.fromarray(np.full((8, 8), 65535, dtype=np.uint16)), (255, 255, 255)),
}


@pytest.mark.parametrize("name", MODES)
def test_modes(tmp_path: Path, name: str) -> None:
    image, expected = MODES[name]
    image.save(tmp_path / "a.png")
    assert np.allclose(pixel(tmp_path / "a.png"), expected, atol=1)


def test_cmyk(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    assert np.allclose(pixel(tmp_path / "a.jpg"), (255, 0, 0), atol=4)


@pytest.mark.parametrize(
    ("values", "grey"),
    [
        (np.full((8, 8), 0.5, dtype=np.float32), 128),
        (np.full((8, 8), 77.0, dtype=np.float32), 77),
        (np.full((8, 8), 257.0 * 77, dtype=np.float32), 77),
        (np.full((8, 8), 257 * 77, dtype=np.int32), 77),
    ],
)
def test_float_and_integer_tiff(tmp_path: Path, values: npt.NDArray[np.generic], grey: int) -> None:
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert pixel(tmp_path / "a.tif") == [grey] * 3


def test_grey_output(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "white").save(tmp_path / "a.png")
    assert pixel(tmp_path / "a.png", channels=1) == [255]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotation(tmp_path: Path, suffix: str, orientation: int) -> None:
    corners = np.zeros((16, 32, 3), dtype=np.uint8)
    corners[:8, :16], corners[:8, 16:], corners[8:, :16] = 255, 170, 85
    upright = np.array([[255, 170], [85, 0]])
    # What a camera stores so that the viewer's turn (EXIF 2.3, table 6) gives it upright again.
    stored: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]] = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.transpose(1, 0, 2),
        6: lambda x: x.transpose(1, 0, 2)[::-1],
        7: lambda x: x.transpose(1, 0, 2)[::-1, ::-1],
        8: lambda x: x.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored(corners))).save(
        tmp_path / f"a.{suffix}", exif=exif, quality=95
    )
    image = read_image(tmp_path / f"a.{suffix}", resize=16)
    assert isinstance(image, GoodImage)
    assert (image.width, image.height) == (32, 16)
    assert np.allclose(image.pixels[3::10, 3::10, 0], upright, atol=6)


def test_large_jpeg_is_decoded_at_reduced_scale_and_looks_the_same(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    full = Image.fromarray(noise).resize((1600, 1200), Image.Resampling.BICUBIC)
    full.save(tmp_path / "a.jpg", quality=95)
    full.save(tmp_path / "a.png")
    reduced, exact = (read_image(tmp_path / f"a.{kind}", resize=100) for kind in ("jpg", "png"))
    assert isinstance(reduced, GoodImage)
    assert isinstance(exact, GoodImage)
    assert (reduced.width, reduced.height) == (1600, 1200)
    assert np.abs(reduced.pixels.astype(int) - exact.pixels).mean() < 1.5


def test_digest_is_of_the_content_and_not_of_the_name(
    tmp_path: Path, make_image: MakeImage
) -> None:
    paths = [make_image(tmp_path / f"{n}.png", seed=seed) for n, seed in enumerate((1, 1, 2))]
    images = [read_image(path, resize=8) for path in paths]
    digests = [image.digest for image in images if isinstance(image, GoodImage)]
    assert digests[0] == digests[1] != digests[2]


def bomb() -> bytes:
    """A PNG that says it has 30000 x 30000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)
    chunks = [header, b"IDAT" + zlib.compress(b"\0" * 100), b"IEND"]
    body = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def broken_files(folder: Path, make_image: MakeImage) -> dict[str, str]:
    """Write one file of each broken kind; their names and a word of the reason."""
    sound = {kind: make_image(folder / f"sound.{kind}", size=(90, 90)) for kind in KINDS}
    data = {kind: path.read_bytes() for kind, path in sound.items()}
    for path in sound.values():
        path.unlink()
    damaged = bytearray(data["png"])
    damaged[60:70] = b"\0" * 10
    contents = {
        "truncated.jpg": (data["jpg"][: len(data["jpg"]) // 2], "truncated"),
        "truncated.png": (data["png"][: len(data["png"]) // 2], "truncated"),
        "truncated.bmp": (data["bmp"][: len(data["bmp"]) // 2], "truncated"),
        "truncated.tif": (data["tif"][: len(data["tif"]) // 2], ""),
        "damaged.png": (bytes(damaged), "broken"),
        "header only.gif": (data["gif"][:13], ""),
        "zero bytes.jpg": (b"", "empty"),
        "page.jpg": (b"<!DOCTYPE html><title>404</title>", "not an image"),
        "phone.heic": (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC, a format"),
        "bomb.png": (bomb(), "bomb"),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    (folder / "gone.jpg").symlink_to(folder / "nowhere")
    (folder / "circle.jpg").symlink_to(folder / "circle.jpg")
    os.mkfifo(folder / "pipe.jpg")
    others = {
        "gone.jpg": "No such file",
        "circle.jpg": "cannot be read",
        "pipe.jpg": "not a regular",
    }
    return {name: reason for name, (_, reason) in contents.items()} | others


KINDS = ("jpg", "png", "bmp", "tif", "gif")


def test_every_broken_kind_is_a_bad_image_with_its_reason(
    tmp_path: Path, make_image: MakeImage
) -> None:
    for name, reason in broken_files(tmp_path, make_image).items():
        with strict_pillow():
            image = read_image(tmp_path / name, resize=16)
        assert isinstance(image, BadImage), name
        assert reason in image.reason, name


def test_values_out_of_range_are_bad(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), -1.0, dtype=np.float32)).save(tmp_path / "a.tif")
    Image.fromarray(np.full((8, 8), np.nan, dtype=np.float32)).save(tmp_path / "b.tif")
    for name in ("a.tif", "b.tif"):
        image = read_image(tmp_path / name, resize=8)
        assert isinstance(image, BadImage)
        assert "outside 0..65535" in image.reason


def test_strict_pillow_gives_the_warnings_back_also_from_several_threads() -> None:
    before = list(warnings.filters)

    def enter(_: int) -> bool:
        with strict_pillow():
            time.sleep(0.001)
            return list(warnings.filters) != before

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(enter, range(20)))
    assert list(warnings.filters) == before


def test_order_is_kept_whatever_the_number_of_threads(
    tmp_path: Path, make_image: MakeImage
) -> None:
    paths = [make_image(tmp_path / f"{n}.png", seed=n, size=(10 + n, 9)) for n in range(70)]
    for threads in (1, 3):
        images = list(read_images(paths, resize=4, threads=threads, quiet=True))
        widths = [image.width for image in images if isinstance(image, GoodImage)]
        assert widths == [10 + n for n in range(70)]


def test_more_than_one_thread_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=300)  # breaks if the two do not meet

    def meet(path: Path, **_: object) -> BadImage:
        together.wait()
        return BadImage(path.name)

    monkeypatch.setattr("dial.data.decode.read_image", meet)
    images = read_images([Path("a"), Path("b")], resize=4, threads=2, quiet=True)
    assert list(images) == [BadImage("a"), BadImage("b")]


def test_message_counts_kinds_and_lists_all_paths() -> None:
    bad = {"a.jpg": "truncated", "b b.jpg": "truncated", "c.png": "empty"}
    message = str(bad_files_error(bad, total=9))
    assert "(9 files), got 3 bad: 2 truncated; 1 empty" in message
    assert "pass --skip-bad (skip_bad=True) to go on without them:\n" in message
    assert message.splitlines()[1:] == [f"  {name}: {reason}" for name, reason in bad.items()]


def test_very_many_bad_files_do_not_flood() -> None:
    bad = {f"{n}.jpg": "truncated" for n in range(1000)}
    assert "... and 800 more" in str(bad_files_error(bad, total=1000))
