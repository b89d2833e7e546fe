"""Ways in which files of tensors, archives and images go wrong: bytes, and what they stand for."""

import io
import json
import struct
import tarfile
import zlib
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from .mutations import mutate, raw, written


def _mutate_tensors(draw: DrawFn, tensors: dict[str, Any]) -> dict[str, Any]:
    """Tensors of other shapes, types and values, renamed or lost."""
    name = draw(st.sampled_from([*tensors]))
    changed, tensor = dict(tensors), tensors[name]
    match draw(st.sampled_from(("drop", "rename", "shape", "shape", "dtype", "value", "value"))):
        case "drop":
            del changed[name]
        case "rename":
            del changed[name]
            changed[draw(st.sampled_from((f"{name}.x", "", "x", "after.target", "\0")))] = tensor
        case "shape":
            shapes = [tensor[None], tensor.flatten(), tensor.sum()]
            if tensor.dim():
                shapes += [tensor[:0], tensor[:-1], torch.cat([tensor, tensor])]
            tall = tensor.repeat(2, *[1] * (tensor.dim() - 1)) if tensor.dim() else tensor
            chosen: Tensor = (
                draw(st.sampled_from((*shapes, tall))) if tensor.dim() else tensor[None]
            )
            changed[name] = chosen.to(tensor.dtype).clone()
        case "dtype":
            kinds = torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.int8
            changed[name] = tensor.to(draw(st.sampled_from(kinds)))
        case _:
            fractions = float("nan"), float("inf"), -1.0, 1e30, 0.0
            numbers = fractions if tensor.is_floating_point() else (-1, 0, 1, 100)
            value = draw(st.sampled_from(numbers))
            flat = tensor.flatten().clone()
            flat[: draw(st.sampled_from((1, len(flat))))] = value
            changed[name] = flat.reshape(tensor.shape)
    return changed


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def _joined(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


@st.composite
def _safetensors_header(draw: DrawFn, content: bytes) -> bytes:
    header, data = _split(content)
    return _joined(written(mutate(draw, header)), data)


@st.composite
def _safetensors_about(draw: DrawFn, content: bytes) -> bytes:
    header, data = _split(content)
    about = header.get("__metadata__", {})
    for name, text in about.items():
        about[name] = written(mutate(draw, json.loads(text))).decode()
    return _joined(json.dumps(header).encode(), data)


@st.composite
def _safetensors_values(draw: DrawFn, content: bytes) -> bytes:
    about = _split(content)[0].get("__metadata__")
    return save_tensors(_mutate_tensors(draw, load_tensors(content)), metadata=about)


def safetensors(content: bytes) -> SearchStrategy[bytes]:
    """Tensors, the header's numbers, what the file says about them, or bytes."""
    kinds = _safetensors_values, _safetensors_about, _safetensors_header, raw
    return st.one_of([kind(content) for kind in kinds])


@st.composite
def _checkpoint(draw: DrawFn, content: bytes) -> bytes:
    stored = torch.load(io.BytesIO(content), weights_only=True)
    tensors = {name: part for name, part in stored.items() if isinstance(part, Tensor)}
    part = stored if len(tensors) == len(stored) else stored[draw(st.sampled_from([*stored]))]
    if isinstance(part, dict) and part and all(isinstance(t, Tensor) for t in part.values()):
        changed = _mutate_tensors(draw, part)
        part.clear()
        part.update(changed)
    else:
        stored = mutate(draw, stored)
    out = io.BytesIO()
    torch.save(stored, out)
    return out.getvalue()


def checkpoint(content: bytes) -> SearchStrategy[bytes]:
    """What `torch.save` wrote, with other tensors, other values or other bytes."""
    return _checkpoint(content) | raw(content)


@st.composite
def _header_of_tar(draw: DrawFn, content: bytes) -> bytes:
    """A field of one header changed, and the header's sum made right again."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        starts = [member.offset for member in archive]
    data, start = bytearray(content), draw(st.sampled_from(starts))
    fields = ((0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8))
    place, size = draw(st.sampled_from(fields))
    odd = (
        b"\0" * size,
        b"7" * size,
        b"\xff" * size,
        b"\x80" + b"\xff" * (size - 1),
        b"../x\0",
        b"-1 ",
    )
    new = draw(st.sampled_from(odd) | st.binary(min_size=1, max_size=size))[:size]
    data[start + place : start + place + len(new)] = new
    data[start + 148 : start + 156] = b" " * 8
    total = sum(data[start : start + 512])
    data[start + 148 : start + 156] = f"{total:06o}\0 ".encode()
    return bytes(data)


def tar(content: bytes) -> SearchStrategy[bytes]:
    """An archive with another header, or with other bytes."""
    return _header_of_tar(content) | raw(content)


@st.composite
def _chunks_of_png(draw: DrawFn, content: bytes) -> bytes:
    """A PNG whose chunks have other bytes, and sums that fit them."""
    out, place = bytearray(content[:8]), 8
    while place + 12 <= len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + size]
        if body and draw(st.booleans()):
            body = draw(raw(body))
        out += struct.pack(">I", len(body)) + kind + body
        out += struct.pack(">I", zlib.crc32(kind + body))
        place += 12 + size
    return bytes(out)


def png(content: bytes) -> SearchStrategy[bytes]:
    """A PNG with other chunks, or with other bytes."""
    return _chunks_of_png(content) | raw(content)


@st.composite
def _arrays(draw: DrawFn, content: bytes) -> bytes:
    with np.load(io.BytesIO(content)) as stored:
        arrays = {name: stored[name] for name in stored}
    numbers = {n: torch.from_numpy(a) for n, a in arrays.items() if a.dtype.kind in "iuf"}
    changed = {
        name: np.asarray(t)
        for name, t in _mutate_tensors(draw, numbers).items()
        if name.strip("\0")
    }
    out = io.BytesIO()
    np.savez(out, **{n: a for n, a in arrays.items() if n not in numbers}, **changed)
    return out.getvalue()


def npz(content: bytes) -> SearchStrategy[bytes]:
    """An archive of arrays with other arrays, or with other bytes."""
    return _arrays(content) | raw(content)


@st.composite
def _header_of_npy(draw: DrawFn, content: bytes) -> bytes:
    size = struct.unpack("<H", content[8:10])[0]
    header, data = content[10 : 10 + size], content[10 + size :]
    shapes = b"(9999999999999, 8)", b"(-1, 32, 32, 3)", b"(33, 32, 32)", b"()", b"(33, 16, 64, 3)"
    kinds = b"'|O'", b"'<f8'", b"'<U9999'", b"'|S1'", b"[('a', '|O')]", b"'|i1'"
    if draw(st.booleans()):
        start = header.index(b"'shape':") + 8
        header = header[:start] + draw(st.sampled_from(shapes)) + b"}" + b" " * 20
    else:
        header = header.replace(b"'|u1'", draw(st.sampled_from(kinds)))
    return content[:8] + struct.pack("<H", len(header)) + header + data


def npy(content: bytes) -> SearchStrategy[bytes]:
    """An array's file with another header, or with other bytes."""
    return _header_of_npy(content) | raw(content)
