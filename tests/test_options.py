"""Fields with their doc strings, read from source, against what Python itself knows of them."""

import dataclasses
import inspect
from pathlib import Path

import pytest

from dial import DialError, methods
from dial.options import read_fields
from dial.training import launch, settings
from dial.training.settings import convert


@pytest.mark.parametrize("owner", [settings.Settings, launch.Execution])
def test_names_types_and_defaults_are_those_of_the_dataclass(owner: type) -> None:
    found = read_fields([Path(inspect.getfile(owner))])
    wanted = {f.name: f for f in dataclasses.fields(owner) if f.name != "options"}
    assert list(found) == list(wanted)
    for name, field in found.items():
        assert field.default == wanted[name].default
        assert field.doc.endswith(".")
        assert field.flag == "--" + name.replace("_", "-")


def test_every_setting_of_every_method_has_a_doc_string() -> None:
    for name in methods.names():
        owner = methods.kind(name)
        bases = [base for base in owner.__mro__[:-1] if base.__module__ != "abc"]
        documented = read_fields(Path(inspect.getfile(base)) for base in bases)
        for field in dataclasses.fields(owner):
            assert documented[field.name].doc, f"{name}.{field.name}"


def test_a_name_in_several_files_has_the_default_of_each(tmp_path: Path) -> None:
    for name, value in (("one", 1.0), ("two", 0.5)):
        text = f'class A:\n    weight: float = {value}\n    """Weight of the\n    loss."""\n'
        (tmp_path / f"{name}.py").write_text(text + "    other: int = 3\n")
    fields = read_fields([tmp_path / "one.py", tmp_path / "two.py"])
    assert list(fields) == ["weight"]  # without a doc string it is no setting
    assert fields["weight"].defaults == {"one": 1.0, "two": 0.5}
    assert fields["weight"].doc == "Weight of the loss."


def test_a_class_has_the_fields_of_the_class_that_it_derives_from(tmp_path: Path) -> None:
    field = '    {}: float = {}\n    """Help."""\n'
    (tmp_path / "interface.py").write_text("class I:\n" + field.format("start", 0))
    (tmp_path / "one.py").write_text(
        "class A(I):\n" + field.format("weight", 1.0) + field.format("other", 2.0)
    )
    (tmp_path / "two.py").write_text("class B(A):\n" + field.format("weight", 0.5))
    fields = read_fields(tmp_path / f"{name}.py" for name in ("interface", "one", "two"))
    assert fields["weight"].defaults == {"one": 1.0, "two": 0.5}
    assert fields["other"].defaults == {"one": 2.0, "two": 2.0}
    assert fields["start"].defaults == {"interface": 0}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", "int | None", 3),
        ("none", "int | None", None),
        ("1e-3", "float", 1e-3),
        ("auto", "float", "auto"),
        ("no", "bool", False),
        ("a,b", "tuple[str, ...] | None", ("a", "b")),
        ("none", "str", "none"),
        ("anchored:0.5", "str | Reference", "anchored:0.5"),
    ],
)
def test_texts_become_values(text: str, kind: str, value: object) -> None:
    assert convert("name", text, kind) == value


@pytest.mark.parametrize(("text", "kind"), [("x", "int"), ("1.5", "int"), ("maybe", "bool")])
def test_a_text_that_is_no_such_value(text: str, kind: str) -> None:
    with pytest.raises(DialError, match=f"wanted a value of lr of the type {kind}, got '{text}'"):
        convert("lr", text, kind)
