"""Options of the command, made from the fields that are the settings: help, type, default.

A setting is written once, as a field with a doc string. Fields are read from the source files,
so that `dial --help` does not import torch.
"""

import ast
import copy
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from dial.errors import DialError
from dial.training.settings import PHOTOGRAPHS, PRESETS, Text


@dataclass(frozen=True)
class Field:
    """A field of a dataclass: its type as written, its default, its doc string in one line."""

    name: str
    type: str
    default: Any
    doc: str
    defaults: dict[str, Any] = field(default_factory=dict)
    """Its default in each file that has a field of this name, by the file's name."""

    @property
    def flag(self) -> str:
        """The option's name: `batch_size` is `--batch-size`."""
        return f"--{self.name.replace('_', '-')}"


def read_fields(files: Iterable[Path]) -> dict[str, Field]:
    """Returns the documented fields of all classes in some files, by name.

    A name that several files have keeps the first doc string. A class also has the fields of the
    class in an earlier file that it derives from, except for the interface, which all have.
    """
    fields: dict[str, Field] = {}
    of_classes: dict[str, list[Field]] = {}
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            inherited = [entry for base in bases for entry in of_classes.get(base, [])]
            own = [*_of_class(node)]
            for entry in [*inherited, *own]:
                first = fields.setdefault(entry.name, entry)
                defaults = first.defaults | {path.stem: entry.default}
                fields[entry.name] = replace(first, defaults=defaults)
            if path.stem != "interface":
                of_classes[node.name] = [*inherited, *own]
    return fields


def _of_class(node: ast.ClassDef) -> Iterable[Field]:
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ) if "ClassVar" not in ast.unparse(kind):
                yield Field(name, ast.unparse(kind), _literal(value), " ".join(doc.split()))


def _literal(value: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(value) if value is not None else None
    except ValueError:  # a factory
        return None


_HERE = Path(__file__).parent
TRAINING = read_fields([_HERE / "training" / "settings.py"])
_FIRST = ("dial", "interface")
METHOD = read_fields(
    sorted((_HERE / "methods").glob("[!_]*.py"), key=lambda p: (p.stem not in _FIRST, p.stem))
)
EXECUTION = read_fields([_HERE / "training" / "launch.py"])
_DEFAULTS = vars(PRESETS[PHOTOGRAPHS]) | PRESETS[PHOTOGRAPHS].options
_TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool}
_FLAGS = {
    "use_cache": ["--cache/--no-cache"],
    "quiet": ["--quiet", "-q"],
    "skip_bad": ["--skip-bad"],
}

COMMON = (
    *("method", "backbone", "weights", "epochs", "steps", "batch_size", "image_size", "lr", "seed"),
    *("reference", "entropy", "device", "devices", "workers", "skip_bad", "report", "quiet"),
)
"""Settings that `--help` shows; `--help-all` shows the others as well."""
_ALL = "dial.help_all"
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")  # within a paragraph

Command = Callable[..., None]


class PlainHelp(TyperCommand):
    """A command whose help has no type beside a flag, which takes no value, and full lines."""

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - typer passes one
        """Returns the help's first sentence, whole."""
        return " ".join((self.help or "").partition("\n\n")[0].split()).partition(". ")[0]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _tidy(self, ctx)
        super().format_help(ctx, formatter)


class PlainGroup(TyperGroup):
    """Such commands, whose own help is like theirs."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _tidy(self, ctx)
        super().format_help(ctx, formatter)


class BriefHelp(PlainHelp):
    """A command whose `--help` leaves out the settings that few need; docs have them all."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        rare = (TRAINING | METHOD | EXECUTION).keys() - {*COMMON}
        brief = copy.copy(self)
        if not ctx.meta.get(_ALL):
            brief.params = [param for param in self.params if param.name not in rare]
        super(BriefHelp, brief).format_help(ctx, formatter)


def _tidy(command: TyperCommand | TyperGroup, ctx: Any) -> None:
    for option in command.get_params(ctx):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    command.help = _LINE_BREAK.sub(" ", command.help or "")


def show_all(context: typer.Context, asked: bool) -> None:
    """Print the help with all settings, and end."""
    if asked:
        context.meta[_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def options_of(
    fields: Iterable[Field], panel: str, *, method: bool = False
) -> list[inspect.Parameter]:
    """Returns the options of some settings, for one panel of the help; `method` for a method's."""
    return [_option(field, panel, method=method) for field in fields]


def _option(field: Field, panel: str, *, method: bool) -> inspect.Parameter:
    kind: Any = _TYPES.get(field.type.partition(" ")[0], str)
    settings: dict[str, Any] = {"show_default": False, "rich_help_panel": panel}
    settings["help"] = " ".join([field.doc, *_notes(field, method=method)])
    if method and kind is float:  # "auto" has it chosen without labels
        settings |= {"parser": _number_or_auto, "metavar": "FLOAT|auto"}
        kind = str
    pair = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
    names = _FLAGS.get(field.name, [pair]) if kind is bool else []
    annotation = Annotated[Optional[kind], typer.Option(*names, **settings)]  # noqa: UP045
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _notes(field: Field, *, method: bool) -> list[str]:
    """Returns which methods have a setting, and its default: that for photographs."""
    of_all = not method or "interface" in field.defaults
    notes = [] if of_all else [f"For {', '.join(field.defaults)}."]
    defaults = field.defaults
    if method and "dial" in defaults:  # the method of the presets, which change its options
        defaults = defaults | {"dial": _DEFAULTS.get(field.name, field.default)}
    values = {name: _shown(value) for name, value in defaults.items()}
    text = _shown(_DEFAULTS.get(field.name, field.default))
    if len(set(values.values())) > 1:
        pairs = [f"{value} ({name})" for name, value in values.items()]
        text = ", ".join(pairs).replace("(interface)", "(others)")
    return notes if text in ("None", "False") else [*notes, f"\\[default: {text}]"]


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _number_or_auto(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise typer.BadParameter("wanted a number, or auto") from None


def with_options(*options: inspect.Parameter) -> Callable[[Command], Command]:
    """Give a command these options; they reach it as keyword arguments."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        fixed = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        parameters = [*fixed, *options]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return command

    return decorate


def texts(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options whose strings are yet to be converted by the types of their fields."""
    return {key: Text(v) if isinstance(v, str) else v for key, v in options.items()}


def assignments_of(words: Iterable[str] | None) -> dict[str, Any]:
    """Returns what `--set NAME=VALUE` sets.

    Raises:
        DialError: words of another form.
    """
    pairs = [word.partition("=") for word in words or ()]
    for name, sign, value in pairs:
        if not (name and sign):
            raise DialError(
                wanted="--set NAME=VALUE", got=f"--set {name}{value}", fix="write --set lr=0.001"
            )
    return {name: Text(value) for name, _, value in pairs}
