"""What holds for the package as a whole: rooms, imports that point one way, public names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dial

SOURCE = Path(dial.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
# From the bottom up: a room imports from itself and from those above it in this list.
ORDER = (
    *("errors", "registry", "files", "console", "torchvision_guard", "allocator"),
    *("references", "layers", "losses", "head", "sklearn", "backbones", "data", "methods"),
    *("training", "selection", "deployment", "reporting", "pipeline", "demo", "benchmarking"),
    *("options", "cli", "__main__"),
)


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of this package that a file imports, each as its parts: ("data", "domain")."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dial":
            module = (node.module or "").split(".")[1:]
            yield from ((*module, alias.name) for alias in node.names)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    assert room in ORDER, f"give '{room}' its place in the order"
    for other in {parts[0] for parts in imports(path)} & set(ORDER) - {room}:
        assert ORDER.index(other) < ORDER.index(room), f"{room} imports {other}, which is below it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_private_modules_stay_in_their_room(path: Path) -> None:
    for parts in imports(path):
        private = [part for part in parts if part.startswith("_")]
        assert not private or parts[0] == room_of(path), f"{'.'.join(parts)} is private"


def test_few_modules_lie_outside_the_rooms() -> None:
    modules = [path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")]
    assert len(modules) <= 10, modules


def test_every_reference_and_every_method_has_a_test_file() -> None:
    tests = Path(__file__).parent
    for room, names in {
        "references": dial.references.REFERENCES.names(),
        "methods": dial.methods.names(),
    }.items():
        for name in names:
            assert (tests / room / f"test_{name}.py").exists(), f"{room}/test_{name}.py"


def test_public_names() -> None:
    for name in dial.__all__:
        assert getattr(dial, name) is not None
        assert name in dir(dial)
    assert callable(dial.convert)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dial.nothing
