"""The command `dial`: reads arguments, calls the library, prints; no logic of its own."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import dial
from dial.errors import DialError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
list_app = typer.Typer(no_args_is_help=True, help="Show what there is to choose from.")
app.add_typer(list_app, name="list")

SOURCE = "Labelled images: class folders, an image list, or a known domain like office31:amazon."
TARGET = "The images to adapt to: any folder of images, an image list, or a known domain."
Source = Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE, show_default=False)]
Target = Annotated[str, typer.Argument(metavar="TARGET", help=TARGET, show_default=False)]
Data = Annotated[
    Path | None, typer.Option(help="Folder that holds the known data sets.", show_default=False)
]
Unlabelled = Annotated[
    bool, typer.Option("--unlabelled", help="Take the target's folders for folders, not classes.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without files that are bad.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts to read.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dial {dial.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Adapt an image classifier to a domain that has no labels."""


@app.command("check")
def check_command(
    source: Source,
    target: Target,
    *,
    data: Data = None,
    unlabelled: Unlabelled = False,
    skip_bad: SkipBad = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Look at both domains before training: counts, sizes, bad files, duplicates, classes."""
    from dial.data.check import check
    from dial.data.check_page import print_check
    from dial.datasets import open_domain

    report = check(
        open_domain(source, data=data),
        open_domain(target, data=data, unlabelled=unlabelled),
        skip_bad=skip_bad,
        quiet=quiet,
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        print_check(report)
    for problem in report.problems:
        _complain(problem)
    raise typer.Exit(0 if report.ok else 2)


@list_app.command("datasets")
def list_datasets(*, as_json: AsJson = False) -> None:
    """Show the data sets that SOURCE and TARGET can name, with their domains."""
    from dial import datasets
    from dial.listing import print_listing

    rows = [datasets.describe(name) for name in datasets.names()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_listing(rows)


def _complain(message: str) -> None:
    typer.echo(f"dial: error: {message}", err=True)


def main() -> None:
    """Run the command; a user's mistake ends with one message and exit code 2, no traceback."""
    try:
        code = app(standalone_mode=False, prog_name="dial")
    except DialError as error:
        _complain(str(error))
        code = 2
    except typer.TyperException as error:  # an argument that cannot be read
        if error.format_message():  # `dial` alone has shown its help already
            _complain(error.format_message())
        code = 2
    except typer.Abort:
        code = 130
    sys.exit(code)
