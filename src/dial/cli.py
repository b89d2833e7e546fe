"""The command `dial`: reads arguments, calls the library, prints; no logic of its own."""

import json
import logging
import os
import shlex
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

import dial
from dial.allocator import keep_memory
from dial.console import flush_output, prepare_streams
from dial.errors import DialError
from dial.options import (
    EXECUTION,
    METHOD,
    TRAINING,
    BriefHelp,
    PlainGroup,
    PlainHelp,
    assignments_of,
    options_of,
    show_all,
    texts,
    with_options,
)
from dial.training import torchrun
from dial.training.clock import waiting

app = typer.Typer(
    cls=PlainGroup, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
)
list_app = typer.Typer(
    cls=PlainGroup, no_args_is_help=True, help="Show what there is to choose from."
)
app.add_typer(list_app, name="list")

DOMAINS = (
    "Sources, and last the target. A source is class folders, tar archives, an image list, or a "
    "known domain like office31:amazon; a target is any folder of images, tar archives, an image "
    "list, or a known domain."
)
Domains = Annotated[
    list[str] | None,
    typer.Argument(metavar="SOURCE... TARGET", help=DOMAINS, show_default=False),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Images to adapt to, for each of several targets; then all arguments are sources.",
        show_default=False,
    ),
]
OfTarget = Annotated[
    str | None,
    typer.Option("--target", help="One of the run's targets, if it has several."),
]
Data = Annotated[
    Path | None, typer.Option(help="Folder that holds the known data sets.", show_default=False)
]
Unlabelled = Annotated[
    bool, typer.Option("--unlabelled", help="Do not take the target's folders for classes.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help=EXECUTION["skip_bad"].doc)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help=EXECUTION["quiet"].doc)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts to read.")]
Device = Annotated[str, typer.Option(help=EXECUTION["device"].doc)]
Preset = Annotated[
    str | None,
    typer.Option(help="Settings to start from; see `dial list presets`.", show_default=False),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting by its field's name; method.NAME or training.NAME where both have it.",
        show_default=False,
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="A finished run, or a file of weights with --backbone and --classes, to go on from.",
        show_default=False,
    ),
]
RAY = "Ray cluster for {}: auto for one that runs, local for this machine, or HOST:PORT."
ADDRESS: dict[str, Any] = {"metavar": "ADDRESS", "show_default": False}
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", show_default=False)
]


def _sides(
    domains: list[str] | None, targets: list[str] | None, start: Path | None = None
) -> tuple[Any, Any]:
    """Returns sources and targets: without --target the last domain is the target, as in `cp`."""
    if targets:
        return domains or None, targets
    domains = domains or []
    if start is not None:
        return domains[:-1] or None, domains[-1:] or None
    return domains[:-1] or domains or None, domains[1:][-1:] or None


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dial {dial.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback has shown it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Adapt an image classifier to a domain that has no labels."""
    if "TORCHELASTIC_RUN_ID" in os.environ and context.invoked_subcommand != "adapt":
        torchrun.refuse(f"dial {context.invoked_subcommand}")


@app.command("check", cls=PlainHelp)
def check_command(
    domains: Domains = None,
    *,
    target: Targets = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="A finished run: are these images still what its model was made for?",
            show_default=False,
        ),
    ] = None,
    data: Data = None,
    unlabelled: Unlabelled = False,
    skip_bad: SkipBad = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Look at all domains before training: counts, sizes, bad files, duplicates, classes.

    With --from RUN IMAGES..., look for drift: exit code 0 for none, 1 for images that differ from
    those that the model was made for by more than chance.
    """
    if start is not None:
        _check_drift(start, domains or [], target, data=data, quiet=quiet, as_json=as_json)
    from dial.data.check import check
    from dial.data.check_page import print_check
    from dial.data.datasets import open_domain

    sources, targets = _sides(domains, target)
    if not sources or not targets:
        raise DialError(
            wanted="a source and a target",
            got=f"{', '.join(sources or targets)} alone" if sources or targets else "none",
            fix="dial check SOURCE TARGET",
        )
    report = check(
        [open_domain(source, data=data) for source in sources],
        [open_domain(each, data=data, unlabelled=unlabelled) for each in targets],
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


def _check_drift(
    run: Path,
    images: list[str],
    target: list[str] | None,
    *,
    data: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare new images with those that a finished run was made for; exits."""
    from dial.deployment.drift import check_drift, summarize
    from dial.deployment.runs import load

    finished = load(run, target=target[0] if target else None)
    drift = check_drift(finished, images, data=data, quiet=quiet)
    typer.echo(json.dumps(drift.to_dict(), indent=2) if as_json else summarize(drift, run))
    raise typer.Exit(1 if drift.alarms else 0)


@app.command("demo", cls=PlainHelp)
def demo_command(
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; a temporary one by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help=TRAINING["seed"].doc)] = 0,
    quiet: Quiet = False,
) -> None:
    """Adapt the embedded digits, end to end, with no download."""
    from dial.demo import demonstrate

    demonstrate(out=out, seed=seed, quiet=quiet)


@app.command("adapt", cls=BriefHelp)
@with_options(
    *options_of(TRAINING.values(), "Training"),
    *options_of(METHOD.values(), "Method", method=True),
    *options_of(EXECUTION.values(), "Execution"),
)
def adapt_command(
    domains: Domains = None,
    *,
    target: Targets = None,
    out: Annotated[Path, typer.Option(help="The run's folder.", show_default=False)],
    model: From = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Names of the classes of weights in --from, one a line, as the outputs are.",
            show_default=False,
        ),
    ] = None,
    labelled: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Target images with labels that take part in training: a list, or class folders.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    preset: Preset = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="The config.json of a run to repeat; options given with it win.",
            show_default=False,
        ),
    ] = None,
    assignments: Assignments = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time that there is: image size, backbone and steps are chosen to fit.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(help="Setting of the method to choose without labels.", show_default=False),
    ] = None,
    validator: Annotated[
        str | None,
        typer.Option(help="Validator to choose it by; see `dial list validators`."),
    ] = None,
    data: Data = None,
    unlabelled: Unlabelled = False,
    as_json: AsJson = False,
    help_all: Annotated[  # noqa: ARG001 - its callback has shown it
        bool,
        typer.Option(
            "--help-all", callback=show_all, is_eager=True, help="Show all settings and exit."
        ),
    ] = False,
    **options: Any,
) -> None:
    """Train a classifier on SOURCE that works on TARGET.

    Several sources come before the target, several targets with --target each. A finished model
    takes the place of the source: dial adapt --from RUN TARGET. Defaults are those for
    photographs; a preset or the data may change them. --help-all shows every setting.
    """
    with waiting():
        from dial.pipeline import adapt
        from dial.training.engine import Interrupted

        options = texts(options) | assignments_of(assignments)
        sources, targets = _sides(domains, target, model)
        try:
            run = adapt(
                sources,
                targets,
                out=out,
                model=model,
                classes=classes,
                labelled=labelled,
                resume=resume,
                preset=preset,
                config=config,
                tune=tune,
                validator=validator,
                data=data,
                unlabelled=unlabelled or None,
                minutes=minutes,
                **options,
            )
        except (Interrupted, KeyboardInterrupt):
            if torchrun.speaks_first():
                text = f"dial: stopped; resume with the same command and --resume ({out})"
                typer.echo(text, err=True)
            raise typer.Exit(130) from None
    if as_json and torchrun.leads():
        typer.echo(json.dumps(run.result, indent=2))


@app.command("predict", cls=PlainHelp)
def predict_command(
    run: RunFolder,
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGES...", help="Files, folders, image lists or known domains."),
    ],
    *,
    target: OfTarget = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file; standard output by default. With --ray also FILE.parquet, a folder."
        ),
    ] = None,
    top: Annotated[bool, typer.Option("--top", help="The five best labels of each image.")] = False,
    data: Data = None,
    device: Device = "auto",
    ray: Annotated[str | None, typer.Option(help=RAY.format("the images"), **ADDRESS)] = None,
    quiet: Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON; needs --out.")
    ] = False,
) -> None:
    """Label images with a finished run: path, label and confidence as CSV."""
    from dial.data.decode import list_bad
    from dial.deployment.prediction import predict
    from dial.deployment.runs import load

    if as_json and out is None:
        raise DialError(
            wanted="a file for the predictions, so that JSON alone is printed",
            got="--json without --out",
            fix="add --out FILE.csv",
        )
    finished = load(run, target=target)
    predictions = predict(finished, images, data=data, device=device, quiet=quiet, ray=ray)
    count = predictions.write(out, top=top)
    if predictions.bad:
        typer.echo(f"dial: {len(predictions.bad)} files could not be read:", err=True)
        typer.echo(list_bad(predictions.bad), err=True)
    if as_json:
        summary = {"file": str(out), "images": count, "unreadable": predictions.bad}
        typer.echo(json.dumps(summary, indent=2))
    elif out is not None and not quiet:
        typer.echo(f"{count} images labelled: {out}", err=True)


@app.command("evaluate", cls=PlainHelp)
def evaluate_command(
    run: RunFolder,
    labelled: Annotated[
        str,
        typer.Argument(
            metavar="LABELLED",
            help="Images with labels, as SOURCE of `adapt`, or the table that a page of `dial "
            "label` saved.",
        ),
    ],
    *,
    target: OfTarget = None,
    data: Data = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score a finished run on images that have labels."""
    from dial.console import print_listing
    from dial.deployment.prediction import describe, evaluate
    from dial.deployment.runs import load

    finished = load(run, target=target)
    scores = evaluate(finished, labelled, data=data, device=device, skip_bad=skip_bad, quiet=quiet)
    if as_json:
        typer.echo(json.dumps(scores.to_dict(), indent=2))
        return
    print_listing(
        [
            {"class": name, "images": str(count), "right": f"{right / count:.1%}"}
            for name, (right, count) in scores.classes.items()
        ]
    )
    typer.echo(describe(scores))
    if scores.unreadable:
        typer.echo(f"{scores.unreadable} files could not be read and do not count", err=True)


@app.command("label", cls=PlainHelp)
def label_command(
    run: RunFolder,
    images: Annotated[
        str | None,
        typer.Argument(
            metavar="IMAGES",
            help="The target's images; by default where they were when the run was made.",
            show_default=False,
        ),
    ] = None,
    *,
    count: Annotated[int, typer.Option(help="Images to draw.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the drawing.")] = 0,
    purpose: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="score|training",
            help="score: images drawn by chance, to measure the accuracy with; training: those "
            "where labels help most, for `dial adapt --labelled`.",
        ),
    ] = "score",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="The page; label.html or label-training.html in the run's folder by default.",
        ),
    ] = None,
    target: OfTarget = None,
    data: Data = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML page to label target images by hand.

    It opens in any browser, offline, and saves a table: `dial evaluate RUN labels.csv` then gives
    the accuracy with its 95 % interval.
    """
    from dial.reporting.label import label

    page = label(
        run,
        images,
        out=out,
        count=count,
        seed=seed,
        purpose=purpose,
        target=target,
        data=data,
        device=device,
        quiet=quiet,
    )
    typer.echo(page)
    if not quiet:
        then = f"dial evaluate {shlex.quote(str(run))} labels.csv"
        if purpose != "score":
            then = "dial adapt SOURCE TARGET --labelled labels-training.csv --out NEW"
        typer.echo(f"open it in a browser, save the table, then: {then}", err=True)


@app.command("export", cls=PlainHelp)
def export_command(
    run: RunFolder,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="FILE.onnx, FILE.pt2 or FILE.safetensors.", show_default=False
        ),
    ] = None,
    *,
    hub_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="In place of FILE: a folder for timm and the Hugging Face hub, with a model card.",
            show_default=False,
        ),
    ] = None,
    target: OfTarget = None,
    images: Annotated[
        list[str] | None,
        typer.Option(help="Images to compare on; some of the target's by default."),
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Write a finished network as ONNX, torch.export or safetensors, and compare it.

    With --hub-folder DIR, write what `timm.create_model("local-dir:DIR", pretrained=True)` loads.
    """
    from dial.deployment.export import export
    from dial.deployment.hub import WEIGHTS, export_folder
    from dial.deployment.runs import load
    from dial.reporting.card import render

    if (file is None) == (hub_folder is None):
        raise DialError(
            wanted="either FILE or --hub-folder DIR",
            got="both" if file else "neither",
            fix="dial export RUN model.onnx, or dial export RUN --hub-folder DIR",
        )
    finished = load(run, target=target)
    if hub_folder is not None:
        card = render(finished.folder, hub=True)
        done = export_folder(finished, hub_folder, card=card, images=images, data=data)
    elif file is not None:
        done = export(finished, file, images=images, data=data)
    if as_json:
        typer.echo(json.dumps(done._asdict() | {"file": str(done.file)}, indent=2))
        return
    weights = done.file / WEIGHTS if hub_folder else done.file
    typer.echo(f"{done.file}: {weights.stat().st_size / 1e6:.1f} MB")
    typer.echo(
        f"read back and compared on {done.images} real images: outputs differ by at most "
        f"{done.difference:.1e}"
    )


@app.command("report", cls=PlainHelp)
def report_command(
    run: RunFolder,
    *,
    target: OfTarget = None,
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the run's folder by default.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Finished run on the same target to compare with, such as source_only."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run."""
    from dial.deployment.runs import locate
    from dial.reporting.report import report

    typer.echo(report(locate(run, target), out=out, baseline=baseline))


def _add_list(kind: str, about: str, *, package: str = "dial") -> None:
    @list_app.command(kind, cls=PlainHelp, help=about)
    def show(*, as_json: AsJson = False) -> None:
        entries = import_module(f"{package}.{kind}").describe()
        rows = [{kind.removesuffix("s"): name, "about": line} for name, line in entries.items()]
        _print_rows(rows, as_json=as_json)


_add_list("methods", "Show the adaptation methods.")
_add_list("backbones", "Show the networks that can be adapted.")
_add_list("references", "Show the reference distributions.")
_add_list(
    "validators",
    "Show the ways to judge a run without the target's labels.",
    package="dial.selection",
)
_add_list(
    "estimators",
    "Show the ways to estimate the accuracy without the target's labels.",
    package="dial.selection",
)


@list_app.command("datasets", cls=PlainHelp)
def list_datasets(*, as_json: AsJson = False) -> None:
    """Show the data sets that SOURCE and TARGET can name, with their domains."""
    from dial.data import datasets

    _print_rows([datasets.describe(name) for name in datasets.names()], as_json=as_json)


@list_app.command("presets", cls=PlainHelp)
def list_presets(*, as_json: AsJson = False) -> None:
    """Show the presets and what each sets."""
    from dial.training.settings import describe_presets

    rows = [{"preset": name, "sets": line} for name, line in describe_presets().items()]
    _print_rows(rows, as_json=as_json)


def _print_rows(rows: list[dict[str, str]], *, as_json: bool) -> None:
    from dial.console import print_listing

    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_listing(rows)


@app.command("cache", cls=PlainHelp)
def cache_command(
    *,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Remove entries that were not used for --days, and damaged ones."
        ),
    ] = False,
    days: Annotated[
        float, typer.Option(min=0, help="For --prune: days without use after which entries go.")
    ] = 30,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Remove entries that were used least lately, until the rest has this size: 10GB.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")
    ] = False,
    cache_dir: Annotated[Path | None, typer.Option(help=EXECUTION["cache_dir"].doc)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the decoded images that are kept on disk, or remove some.

    Entries that a running process uses are never removed. All others come back when a run needs
    them: its images are then decoded again.
    """
    from dial.data.cache import default_cache_dir
    from dial.data.cache_entries import list_entries, parse_size
    from dial.data.cache_entries import prune as remove
    from dial.data.cache_page import print_entries, to_dict

    root = cache_dir or default_cache_dir()
    removed = None
    if prune or limit is not None:
        size = None if limit is None else parse_size(limit)
        removed = remove(root, days=days if prune else None, limit=size, dry_run=dry_run)
    entries = list_entries(root)
    if as_json:
        typer.echo(json.dumps(to_dict(root, entries, removed), indent=2))
    else:
        print_entries(root, entries, removed, dry_run=dry_run)


BENCH = ("backbone", "weights", "image_size", "epochs", "steps", "batch_size", "lr")
"""Settings that all cells of a benchmark share and that have an option of their own."""

COMPUTING = ("device", "workers", "cache_dir", "cache_limit")
"""How a benchmark is carried out, as far as there are options for it."""


@app.command("bench", cls=PlainHelp)
@with_options(
    *options_of((TRAINING[name] for name in BENCH), "Training"),
    *options_of((EXECUTION[name] for name in COMPUTING), "Execution"),
)
def bench_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="office31, office31-ablation, office31-multi, digits, digits-ablation or "
            "digits-references.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the runs and tables.", show_default=False)],
    data: Data = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="Transfers to run, like A-W,amazon-dslr; by default all."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Rows to run, by name, separated by commas.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds; each row is run once with each.")] = "0,1,2",
    preset: Preset = None,
    assignments: Assignments = None,
    shard: Annotated[
        str | None, typer.Option(help="i/n: run the i-th of n shares of the grid.")
    ] = None,
    ray: Annotated[str | None, typer.Option(help=RAY.format("the cells"), **ADDRESS)] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Run nothing; write the tables of finished cells.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Run a grid of transfers, methods and seeds, and show it beside the paper's tables."""
    from dial.benchmarking import bench, print_table
    from dial.training.engine import Interrupted

    execution = {key: value for key, value in options.items() if key in EXECUTION}
    settings = texts({key: options[key] for key in BENCH}) | assignments_of(assignments)
    try:
        outcome = bench(
            name,
            out=out,
            data=data,
            tasks=tasks,
            methods=methods,
            seeds=seeds,
            preset=preset,
            shard=shard,
            tables_only=tables,
            quiet=quiet,
            ray=ray,
            execution=execution,
            **settings,
        )
    except (Interrupted, KeyboardInterrupt):
        typer.echo(f"dial: stopped; resume with the same command ({out})", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps({"results": outcome.results, "failed": outcome.failed}, indent=2))
    else:
        print_table(outcome.table, out)
    for cell, reason in outcome.failed.items():
        _complain(f"{cell}: {reason}")
    raise typer.Exit(2 if outcome.failed else 0)


def _complain(message: str) -> None:
    if torchrun.speaks_first():
        typer.echo(f"dial: error: {message}", err=True)


def _what_came(error: Exception) -> str:
    """The value of an option that could not be read; the parser's message leaves it out."""
    options = getattr(getattr(error, "param", None), "opts", [])
    words = [part for word in sys.argv[1:] for part in word.split("=", maxsplit=1)]
    values = [after for word, after in pairwise(words) if word in options]
    return f", got {values[-1]!r}" if values else ""


def _require_folder() -> None:
    """Refuse to run in a folder that was removed: libraries end the process there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise DialError(
            wanted="to run in a folder", got="one that was removed", fix="cd to another"
        ) from error


def main() -> None:
    """Run the command; a user's mistake ends with one message and exit code 2, no traceback."""
    prepare_streams()
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of a home folder that is not there
    try:
        _require_folder()
        try:
            with keep_memory():
                code = app(standalone_mode=False, prog_name="dial")
        finally:
            flush_output()
    except DialError as error:
        _complain(str(error))
        code = 2
    except OSError as error:  # of a disk, say, wherever there is nothing better to be said
        fix = "free space, correct the path or its rights; then the same command, with --resume "
        fix += "where it was given to a run"
        _complain(
            str(DialError(wanted="to read and write what was named", got=str(error), fix=fix))
        )
        code = 2
    except typer.TyperException as error:  # an argument that cannot be read
        if error.format_message():  # `dial` alone has shown its help already
            _complain(error.format_message() + _what_came(error))
        code = 2
    except typer.Abort:
        code = 130
    sys.exit(code)
