"""The command `longtail`: inspect data, train, evaluate, compare.

Every subcommand ends by printing the next command to try.
"""

from __future__ import annotations

import ast
import io
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from longtail import __version__
from longtail.cli import auto, flags, results, tables
from longtail.cli.cache import cache
from longtail.cli.compare import compare
from longtail.cli.embed import embed
from longtail.cli.export import export
from longtail.cli.inspect import inspect
from longtail.cli.predict import predict
from longtail.cli.report import report
from longtail.cli.reproduce import reproduce
from longtail.cli.serve import serve
from longtail.cli.sweep import sweep
from longtail.errors import LongtailError, explained, printable
from longtail.recipes import RECIPES
from longtail.recipes.signatures import Recipe, headline, read
from longtail.records.layout import RunFolder

if TYPE_CHECKING:
    from longtail.records.row import Row

VERBS = (
    *(
        "demo",
        "inspect",
        "embed",
        "train",
        "eval",
        "report",
        "compare",
        "predict",
        "export",
        "serve",
        "sweep",
        "reproduce",
    ),
    *("list", "show", "doctor", "cache"),
)
"""The subcommands in the order of `longtail --help`."""


class _Ordered(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=VERBS.index)


app = typer.Typer(
    name="longtail",
    cls=_Ordered,
    help="Train image classifiers that also work on the rare classes.",
    epilog=(
        "Start with `longtail demo`, or with `longtail inspect PATH` on a folder of class folders."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def run() -> None:
    """Run the command line. User errors print one sentence; --debug shows the traceback."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Do not fail on characters that the terminal cannot encode
            stream.reconfigure(errors="replace")
    try:
        app(arguments)
    except SystemExit as end:
        if end.code == 130:  # Ctrl-C before something was started that ends in an orderly way
            print("stopped: run the same command again", file=sys.stderr)
        raise
    except Exception as error:
        message = explained(error)
        if message is None or len(arguments) < len(sys.argv) - 1:
            raise
        print(printable(message[0]), file=sys.stderr)
        sys.exit(message[1])


def _version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


@app.command("list")
def list_() -> None:
    """List recipes, datasets and networks."""
    from longtail.data.names import KNOWN

    functions = {name: target.partition(":")[2] for name, target in RECIPES.items()}
    recipes = {
        name: headline(name) if name == function else f"another name of {function}"
        for name, function in functions.items()
    }
    tables.pairs("recipes", recipes)
    tables.pairs(
        "data",
        {
            **KNOWN,
            "PATH": "a folder of class folders, a list or CSV of path,label, or parquet files",
        },
    )
    tables.pairs("networks", dict.fromkeys(networks(), "") | {"timm:NAME": "any model of timm"})
    tables.next_step("longtail show balanced_softmax", "longtail inspect digits-lt")


def networks() -> list[str]:
    """The names of the built-in networks, parsed from the source to avoid importing torch."""
    source = (Path(__file__).parents[1] / "nn" / "networks.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "NETWORKS"
            and node.value
        ):
            return (
                [ast.literal_eval(key) for key in node.value.keys if key]
                if isinstance(node.value, ast.Dict)
                else []
            )
    raise AssertionError("networks.py has a literal dict NETWORKS")


@app.command()
def show(
    recipe: Annotated[
        str, typer.Argument(help="A name from `longtail list`, or package.module:function.")
    ],
    cite: Annotated[
        bool, typer.Option("--cite", help="Print only the citation, as BibTeX.")
    ] = False,
) -> None:
    """Show a recipe: its description, keywords and source."""
    shown = read(recipe)
    if cite:
        from longtail.experiments.spec import citations

        print(
            "\n\n".join(citations().get(shown.name, ()))
            or f"{shown.name} has no citation: see the references in its docstring."
        )
        return
    tables.recipe(shown)
    tables.next_step(f"longtail train {shown.name} --data digits-lt")


app.command("inspect")(inspect)
app.command("embed")(embed)


def _train(recipe: Recipe, values: dict[str, Any]) -> None:
    from longtail.experiments.jobs import default_folder
    from longtail.runs import train

    shared = {name: values[name] for name in flags.SHARED}
    keywords = flags.keywords(recipe, values)
    data, out = shared.pop("data"), shared.pop("out")
    out = out or default_folder(recipe.name.rpartition(":")[2], data, shared["seed"])
    result = train(recipe.target, data, out, **shared, **keywords)
    if result.row is None:
        tables.say("Dry run: nothing was written.")
        tables.next_step("the same command without --dry-run")
        return
    if not result.fresh:
        tables.say(f"{result.folder} was finished before; its results:")
    results.row(result.row)
    tables.say(f"run: {result.folder}")
    if (report := RunFolder(result.folder).report).exists():
        tables.say(f"report: {report}")
    other = _to_compare(result.folder, result.row)
    tables.next_step(
        shlex.join(["longtail", "predict", str(result.folder), "IMAGES"])
        if other is None
        else shlex.join(["longtail", "compare", str(other), str(result.folder)])
    )


def _to_compare(folder: Path, row: Row) -> Path | None:
    """A finished run in the same parent folder that is comparable with this one."""
    from longtail.records.row import read_row
    from longtail.report.comparison import compare

    beside = [run.path for run in RunFolder(folder.parent).finished_inside()]
    for other in (path for path in beside if path != folder):
        try:
            candidate = read_row(other)
            if (
                candidate["data"]["hash"] == row["data"]["hash"]
                and len(compare([candidate, row]).lines) > 1
            ):
                return other
        # Unreadable, without test images, or not comparable; whatever a neighbour is, this training
        # has succeeded.
        except Exception:
            continue
    return None


app.add_typer(
    typer.Typer(cls=flags.recipe_group(_train, auto.perform), no_args_is_help=True),
    name="train",
    help=(
        "Train a recipe on data; run the same command again to resume. `longtail train RECIPE"
        " --help`"
        " lists all flags."
    ),
    subcommand_metavar="RECIPE [FLAGS]...",
)


@app.command("eval")
def eval_(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        str | None,
        typer.Option(help="Other data, with the classes of the run.", rich_help_panel=flags.DATA),
    ] = None,
    root: flags.Root = None,
    tta: Annotated[
        Literal["none", "flip"] | None,
        typer.Option(help="Test-time augmentation; by default that of the run."),
    ] = None,
    device: flags.Device = "auto",
    threads: flags.Threads = None,
    workers: flags.Workers = 0,
    on_bad_image: flags.OnBadImage = "refuse",
    scoring: Annotated[
        str | None,
        typer.Option(
            help="The score that ranks, where data has several.", rich_help_panel=flags.DATA
        ),
    ] = None,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Overwrite the stored scores and predictions.")
    ] = False,
    trust: flags.Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Evaluate a finished run again, on its validation and test images or on other data."""
    from longtail.records.documents import read_document
    from longtail.records.kinds import MODEL
    from longtail.runs import evaluate

    if on_bad_image != "refuse" and data is None:
        raise LongtailError(
            "--on-bad-image has no effect without --data: remove it; the images of the run are read"
            " as they were for training"
        )
    result = evaluate(
        run,
        data=data,
        root=root,
        tta=tta,
        device=device,
        threads=threads,
        workers=workers,
        rewrite=rewrite,
        on_bad_image=on_bad_image,
        scoring=scoring,
        trust=trust,
    )
    if as_json:
        print(json.dumps(result, indent=1))
        return
    results.summaries(result)
    summary = result["test"] or result["val"]
    if summary is not None:
        results.details(summary, read_document(RunFolder(run).model.spec, MODEL)["classes"])
    tables.next_step(f"longtail compare {shlex.quote(str(run))} ANOTHER_RUN")


@app.command()
def doctor() -> None:
    """Show devices, threads, precision, versions and optional dependencies of this machine."""
    from longtail.cli.doctor import findings

    for title, rows in findings().items():
        tables.pairs(title, rows)
    tables.next_step("longtail demo")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder of the two runs.")] = Path("runs/demo"),
    threads: Annotated[
        int,
        typer.Option(help="CPU threads of torch; more do not help with images this small."),
    ] = 1,
) -> None:
    """Train a plain and a balanced classifier on long-tailed digits in a minute; compare them."""
    from longtail.cli.demo import perform

    perform(out, threads=threads)
    tables.next_step(
        f"longtail report {shlex.quote(str(out))} --out demo.html",
        "longtail inspect PATH_OF_YOUR_FOLDER_OF_CLASS_FOLDERS",
    )


app.command(
    "sweep",
    cls=flags.advising(
        "a sweep has no flag --{name}: write --set {name}=VALUE or --set {name}=VALUE,VALUE"
    ),
    help=(
        "Train every combination of recipes, keywords and seeds, or search on validation, then"
        " compare; resumable."
    ),
)(flags.signed(sweep, [flags.CONTEXT, *flags.SWEEP.values()]))
app.command("compare")(compare)
app.command("reproduce")(reproduce)
app.command("report")(report)
app.command("predict")(predict)
app.command("export")(export)
app.command("serve")(serve)
app.command("cache")(cache)


if __name__ == "__main__":
    run()
