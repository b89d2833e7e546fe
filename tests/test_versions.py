"""The ranges of pyproject.toml, the versions of the set-up, and the oldest ones that are tested."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
NEWER = {"torch", "torchvision"}  # of the oldest there is no build for CPUs in the package index


def ranges(*without: str) -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    lines = [*project["dependencies"]]
    lines += [line for extra, some in extras if extra not in without for line in some]
    named: dict[str, Requirement] = {
        canonicalize_name(found.name): found for found in map(Requirement, lines)
    }
    del named["dial-da"]  # extras that bring other extras
    return named


def pins(file: str) -> dict[str, Version]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize(
    ("file", "without"),
    [
        ("constraints.txt", ()),
        ("constraints-oldest.txt", ("docs", "examples")),
    ],  # of no use to users
)
def test_every_range_has_a_pin_within_it(file: str, without: tuple[str, ...]) -> None:
    assert pins(file).keys() == ranges(*without).keys()
    for name, version in pins(file).items():
        assert ranges()[name].specifier.contains(version), f"{name} {version} in {file}"


def test_the_oldest_versions_are_those_that_the_ranges_begin_with() -> None:
    for name, version in pins("constraints-oldest.txt").items():
        if name in NEWER:
            assert version == pins("constraints.txt")[name]
            continue
        (begin,) = ranges()[name].specifier
        assert begin.operator == ">="
        first = Version(begin.version).release
        assert version.release[: len(first)] == first, f"{name} {version} is not {begin}"
