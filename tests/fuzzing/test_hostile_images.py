"""Images that were made to do harm, or that nobody checked: each is read, or named as bad."""

import io
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from dial.data.decode import BadImage, GoodImage, read_image, strict_pillow

from .command import run

GOOD = ""
SMALL = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)  # type: ignore[arg-type]
    return out.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG with the right sum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int, height: int, *chunks: bytes, mode: int = 2, bits: int = 8, data: bytes = b""
) -> bytes:
    """A PNG that says that it has this size, with chunks of one's own before its data."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, mode, 0, 0, 0))
    pixels = chunk(b"IDAT", data or zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + pixels + chunk(b"IEND", b"")


def zeros(size: int) -> bytes:
    """So many zeros, compressed."""
    packer, out = zlib.compressobj(9), bytearray()
    for start in range(0, size, 1 << 20):
        out += packer.compress(bytes(min(1 << 20, size - start)))
    return bytes(out + packer.flush())


def flat(side: int, kind: str) -> bytes:
    """A sound PNG of one color, as large as it says."""
    mode, size, bits = {"L": (0, 1, 8), "RGB": (2, 3, 8), "RGBA": (6, 4, 8), "I;16": (0, 2, 16)}[
        kind
    ]
    return png(side, side, mode=mode, bits=bits, data=zeros(side * (1 + side * size)))


def frames(count: int) -> bytes:
    """A GIF of very many frames."""
    first = saved(Image.new("L", (4, 4)), "GIF")
    start = first.index(b",")  # of the first frame; the trailer is the last byte
    return first[:start] + first[start:-1] * count + first[-1:]


def fits_bomb() -> bytes:
    """A FITS file that says that it is compressed, with data that grows a thousandfold."""
    cards = ("SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 30000", "NAXIS2  = 30000")
    head = "".join(
        card.ljust(80) for card in (*cards, "ZIMAGE  = T", "ZCMPTYPE= 'GZIP_1  '", "END")
    )
    return head.ljust(2880).encode() + zeros(1 << 24)


def with_text(kind: bytes) -> bytes:
    """A PNG whose text or profile is 64 MB long, once it is unpacked."""
    packed = zeros(1 << 26)
    body = {
        b"iTXt": b"key\0\1\0\0\0" + packed,
        b"zTXt": b"key\0\0" + packed,
        b"iCCP": b"key\0\0" + packed,
    }[kind]
    data = zlib.compress(bytes(9 * (1 + 12 * 3)))
    return png(12, 9, chunk(kind, body), data=data)


def tiff(width: int, height: int) -> bytes:
    """A grey TIFF that says that it has this size, and holds nine bytes of it."""
    values = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 9}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    place = struct.pack("<I", 8 + 10)
    return b"II*\0" + place + bytes(10) + struct.pack("<H", len(values)) + entries + bytes(4)


def with_exif(content: bytes) -> bytes:
    return saved(SMALL, "JPEG", exif=b"Exif\0\0" + content)


def palette_out_of_range() -> bytes:
    """An image of a palette of two colors, whose pixels ask for the 255th."""
    palette = chunk(b"PLTE", bytes(6))
    return png(4, 4, palette, mode=3, data=zlib.compress((b"\0" + b"\xff" * 4) * 4))


JPEG, GIF, BMP = saved(SMALL, "JPEG"), saved(SMALL.quantize(8), "GIF"), saved(SMALL, "BMP")
BOMB = "decompression bomb"
NONE = "not an image"
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "claims-4-gigapixels.png": (lambda: png(65535, 65535), BOMB),
    "claims-most.png": (lambda: png(2**31 - 1, 2**31 - 1), BOMB),
    "claims-nothing.png": (lambda: png(0, 5), ".*"),
    "claims-more-than-it-has.png": (lambda: png(3000, 3000), "truncated|broken"),
    "unpacks-to-100-megapixels.png": (lambda: flat(10_000, "L"), BOMB),
    "claims-much.bmp": (lambda: BMP[:18] + struct.pack("<ii", 60000, 60000) + BMP[26:], BOMB),
    "claims-much.gif": (lambda: GIF[:6] + b"\xff" * 4 + GIF[10:], BOMB),
    "claims-much.tif": (lambda: tiff(60000, 60000), BOMB),
    "claims-much.ppm": (lambda: b"P6 100000 100000 255\n" + bytes(99), BOMB),
    "digits.ppm": (lambda: b"P6 " + b"9" * 10_000 + b" 1 255\n", ".*"),
    "claims-much.webp": (
        lambda: saved(SMALL, "WEBP", lossless=True).replace(b"VP8L", b"VP8X", 1),
        f"{NONE}|broken|{BOMB}",
    ),
    "10000-frames.gif": (lambda: frames(10_000), GOOD),
    "text.png": (lambda: b"This is no image, although its name says so.\n" * 9, NONE),
    "empty.png": (bytes, "empty"),
    "nul.jpg": (lambda: bytes(5000), NONE),
    "signature.png": (lambda: b"\x89PNG\r\n\x1a\n", f"{NONE}|broken"),
    "vector.svg": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>', "SVG"),
    "vector.png": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>', NONE),
    "entities.svg": (
        lambda: b'<!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg>&a;</svg>',
        "SVG",
    ),
    "icon.jpg": (lambda: saved(SMALL.resize((16, 16)), "ICO"), NONE),
    "postscript.jpg": (
        lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
        NONE,
    ),
    "layers.jpg": (lambda: b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 9, 9, 8, 3), NONE),
    "document.jpg": (lambda: b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n", NONE),
    "stars.png": (fits_bomb, NONE),
    "packed.png": (lambda: b"PK\3\4" + bytes(99), NONE),
    "long-text.png": (lambda: with_text(b"iTXt"), ".*"),
    "long-packed-text.png": (lambda: with_text(b"zTXt"), ".*"),
    "long-profile.png": (lambda: with_text(b"iCCP"), ".*"),
    "truncated.jpg": (lambda: JPEG[:-40], "truncated"),
    "truncated.gif": (lambda: GIF[:-30], "truncated|broken"),
    "wrong-sum.png": (
        lambda: png(12, 9, data=zlib.compress(bytes(333))).replace(b"IDAT", b"IDAT\1", 1),
        ".*",
    ),
    "exif-turned-9.jpg": (lambda: with_exif(b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x09\0"), GOOD),
    "exif-in-circles.jpg": (lambda: with_exif(b"II*\0\x08\0\0\0\0\0\x08\0\0\0"), GOOD),
    "exif-of-noise.jpg": (lambda: with_exif(b"\xff" * 500), GOOD),
    "exif-cut.jpg": (lambda: with_exif(b"MM\0*"), GOOD),
    "palette-of-two.png": (palette_out_of_range, GOOD),
    "cmyk.jpg": (lambda: saved(SMALL.convert("CMYK"), "JPEG"), GOOD),
    "lab.tif": (lambda: saved(SMALL.convert("LAB"), "TIFF"), ".*"),
    "16-bits.png": (lambda: saved(Image.fromarray(np.full((5, 5), 40000, np.uint16)), "PNG"), GOOD),
    "not-a-number.tif": (
        lambda: saved(Image.fromarray(np.full((5, 5), np.nan, np.float32)), "TIFF"),
        "outside",
    ),
    "animated.png": (
        lambda: saved(SMALL, "PNG", save_all=True, append_images=[SMALL.rotate(90)]),
        GOOD,
    ),
    "one-pixel.png": (lambda: saved(SMALL.resize((1, 1)), "PNG"), GOOD),
    "thin.png": (lambda: saved(SMALL.resize((20_000, 1)), "PNG"), GOOD),
    "text-in-it.png": (
        lambda: saved(SMALL, "PNG", pnginfo=_described("\x1b[2J\ud7ff" + "x" * 1000)),
        GOOD,
    ),
}
"""What is in the file, and the reason why it is bad; `.*` where Pillow may change its mind."""


def _described(text: str) -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", text)
    return info


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them, and a sound image."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (make, _) in HOSTILE.items():
        (folder / name).write_bytes(make())
    SMALL.save(folder / "sound.png")
    return folder


@pytest.mark.parametrize("name", HOSTILE)
def test_each_is_read_or_named_as_bad(name: str, hostile: Path) -> None:
    with strict_pillow():
        image = read_image(hostile / name, resize=8)
    if HOSTILE[name][1] == GOOD:
        assert isinstance(image, GoodImage), image
    elif isinstance(image, BadImage):
        assert re.search(HOSTILE[name][1], image.reason), image
    else:
        assert HOSTILE[name][1] == ".*"
        assert image.pixels.shape == (8, 8, 3)


def test_a_folder_of_them_is_checked_in_little_memory(
    hostile: Path, folders: tuple[Path, Path]
) -> None:
    told = run("check", folders[0], hostile, "--quiet")
    assert told.code == 2
    assert "images that can all be read" in told.err
    told = run("check", folders[0], hostile, "--quiet", "--skip-bad", "--json")
    assert (told.code, told.err) == (0, "")
    bad = json.loads(told.out)["target"]["bad"]
    reasons = {Path(name).name: reason for name, reason in bad.items()}
    for name, (_, reason) in HOSTILE.items():
        if reason not in (GOOD, ".*"):
            assert re.search(reason, reasons[name])
    assert "sound.png" not in reasons


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "I;16"])
def test_the_largest_image_that_is_read_takes_less_than_a_gigabyte(
    kind: str, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    content = flat(9400, kind)  # 88 megapixels; 90 are refused
    for name in ("one.png", "another.png"):
        (tmp_path / name).write_bytes(content)
    told = run("check", folders[0], tmp_path, "--quiet")
    assert (told.code, told.err) == (0, "")


SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))


def test_only_named_formats_are_ever_opened() -> None:
    opened = [
        call
        for path in SOURCES
        for call in re.findall(
            r"Image\.open\((?:[^()]|\([^()]*(?:\([^()]*\))?\))*\)", path.read_text()
        )
    ]
    assert len(opened) == 2
    assert all("formats=_FORMATS" in call for call in opened)
