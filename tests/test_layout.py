"""What holds for the package as a whole: imports point one way, and the public names are there."""

import ast
from pathlib import Path

import pytest

import dial

SOURCE = Path(dial.__file__).parent
# From the bottom up: a module imports only from its own line and those above it here.
ORDER = [
    ["errors", "torchvision_guard", "allocation"],
    ["registry", "kernels", "selection", "pooling", "synchronisation", "shift", "embedding"],
    ["references", "domains"],
    ["layers"],
    ["conversion", "losses"],
    ["calibration", "folding"],
    ["backbones", "data", "listing"],
    ["datasets", "methods", "settings", "files", "tensorfiles", "console", "locking"],
    ["engine", "models", "machine", "observation", "evidence", "outputs", "repetition"],
    ["runs", "gathering", "findings", "drawing", "validators", "estimation"],
    ["plots"],
    ["report"],
    ["conclusion", "trials"],
    ["tuning"],
    ["adaptation", "prediction"],
    ["exporting"],
    ["demonstration", "benchmarking"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def imported(path: Path) -> set[str]:
    """The parts of this package that a file imports when it is imported itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dial":
            parts = (node.module or "").split(".")[1:2] or [alias.name for alias in node.names]
            names.update(part for part in parts if part in LEVEL)
    return names


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_imports_point_one_way(path: Path) -> None:
    part = path.relative_to(SOURCE).with_suffix("").parts[0]
    if part == "__init__":
        return
    assert part in LEVEL, f"give '{part}' its place in the order"
    for other in imported(path) - {part}:
        assert LEVEL[other] <= LEVEL[part], f"{part} imports {other}, which stands above it"


def test_public_names() -> None:
    for name in dial.__all__:
        assert getattr(dial, name) is not None
        assert name in dir(dial)
    assert callable(dial.convert)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dial.nothing
