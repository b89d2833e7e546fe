"""What holds for the package as a whole: imports point one way, and the public names are there."""

import ast
from pathlib import Path

import pytest

import dial

SOURCE = Path(dial.__file__).parent
# From the bottom up: a room imports from itself and from those above it in this list.
ORDER = (
    *("errors", "registry", "files", "tensorfiles", "console", "listing", "torchvision_guard"),
    *("references", "layers", "losses", "backbones", "data", "methods", "training", "selection"),
    *("deployment", "reporting", "conclusion", "pipeline", "demo", "benchmarking", "cli"),
)


def imported(path: Path) -> set[str]:
    """The rooms of this package that a file imports from."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dial":
            parts = (node.module or "").split(".")[1:2] or [alias.name for alias in node.names]
            names.update(part for part in parts if part in ORDER)
    return names


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(SOURCE).with_suffix("").parts[0]
    if room == "__init__":
        return
    assert room in ORDER, f"give '{room}' its place in the order"
    for other in imported(path) - {room}:
        assert ORDER.index(other) < ORDER.index(room), f"{room} imports {other}, which is below it"


def test_public_names() -> None:
    for name in dial.__all__:
        assert getattr(dial, name) is not None
        assert name in dir(dial)
    assert callable(dial.convert)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dial.nothing
