"""`longtail VERB`: look at data, train, evaluate, compare. Every verb ends with the next thing to
do.
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
from longtail.cli import auto, flags, tables
from longtail.cli.compare import compare
from longtail.cli.export import export
from longtail.cli.inspect import inspect
from longtail.cli.predict import predict
from longtail.cli.report import report
from longtail.cli.reproduce import reproduce
from longtail.cli.serve import serve
from longtail.cli.sweep import sweep
from longtail.errors import LongtailError, explained
from longtail.experiments.jobs import default_folder
from longtail.recipes import RECIPES
from longtail.recipes.signatures import Recipe, read
from longtail.records.layout import RunFolder

if TYPE_CHECKING:
    from longtail.records.row import Row

VERBS = (
    *(
        "demo",
        "inspect",
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
    *("list", "show", "doctor"),
)
"""As they are listed: in the order in which people need them."""


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=VERBS.index)


app = typer.Typer(
    name="longtail",
    cls=_InOrder,
    help="Train image classifiers that also work on the rare classes.",
    epilog=(
        "Begin with `longtail demo`, or with `longtail inspect` and the path of a folder of class"
        " folders."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def run() -> None:
    """The command `longtail`. What a person can mend is said in a sentence; --debug shows where it
    came from.
    """
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A bar or a name that the terminal has no letters for is no reason to stop
            stream.reconfigure(errors="replace")
    try:
        app(arguments)
    except Exception as error:
        message = explained(error)
        if message is None or len(arguments) < len(sys.argv) - 1:
            raise
        print(message[0], file=sys.stderr)
        sys.exit(message[1])


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    pass


@app.command("list")
def list_() -> None:
    """List recipes, data sets and networks."""
    from longtail.data.names import KNOWN

    recipes = {}
    for name, target in RECIPES.items():
        own = read(name)
        recipes[name] = (
            own.headline if own.name == name else f"another name of {target.partition(':')[2]}"
        )
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
    """The names of our networks, read from the source: importing it would import torch."""
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
    cite: Annotated[bool, typer.Option("--cite", help="Only what to cite, as BibTeX.")] = False,
) -> None:
    """Show a recipe: what it says about itself, its keywords, its source."""
    own = read(recipe)
    if cite:
        from longtail.experiments.spec import citations

        print(
            "\n\n".join(citations().get(own.name, ()))
            or f"{own.name} names nothing to cite: cite what its docstring names."
        )
        return
    tables.recipe(own)
    tables.next_step(f"longtail train {own.name} --data digits-lt")


app.command("inspect")(inspect)


def _train(recipe: Recipe, values: dict[str, Any]) -> None:
    from longtail.runs import train

    shared = {name: values[name] for name in flags.SHARED}
    own = flags.keywords(recipe, values)
    data, out = shared.pop("data"), shared.pop("out")
    out = out or default_folder(recipe.name.rpartition(":")[2], data, shared["seed"])
    result = train(recipe.target, data, out, **shared, **own)
    if result.row is None:
        tables.say("Dry run: nothing was written.")
        tables.next_step("the same command without --dry-run")
        return
    if not result.fresh:
        tables.say(f"{result.folder} was finished before; this is its row.")
    tables.row(result.row)
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
    """A finished run beside this one that `longtail compare` would rank with it."""
    from longtail.records.row import read_row
    from longtail.report.comparison import compare

    beside = [run.path for run in RunFolder(folder.parent).finished_inside()]
    for other in (own for own in beside if own != folder):
        try:
            found = read_row(other)
            if (
                found["data"]["hash"] == row["data"]["hash"]
                and len(compare([found, row]).lines) > 1
            ):
                return other
        # It has no test images, is broken, or differs in what would make the ranking unfair
        except LongtailError:
            continue
    return None


app.add_typer(
    typer.Typer(cls=flags.recipe_group(_train, auto.perform), no_args_is_help=True),
    name="train",
    help=(
        "Train a recipe on data; the same command again resumes. `longtail train RECIPE --help`"
        " lists all flags."
    ),
    subcommand_metavar="RECIPE [FLAGS]...",
)


@app.command("eval")
def eval_(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Other data with classes that the run knows.", rich_help_panel=flags.DATA
        ),
    ] = None,
    root: flags.Root = None,
    tta: Annotated[
        Literal["none", "flip"] | None,
        typer.Option(help="Averaging at test time; as in training unless given."),
    ] = None,
    device: flags.Device = "auto",
    threads: flags.Threads = None,
    workers: flags.Workers = 0,
    on_bad_image: flags.OnBadImage = "refuse",
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Write the row's numbers and predictions anew.")
    ] = False,
    trust: flags.Trust = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead.")
    ] = False,
) -> None:
    """Evaluate a finished run again: on its own validation and test images, or on other data."""
    from longtail.records.documents import read_document
    from longtail.records.kinds import MODEL
    from longtail.runs import evaluate

    if on_bad_image != "refuse" and data is None:
        raise LongtailError(
            "expected --on-bad-image with --data, got it alone: the run's own images are read as"
            " they were in training"
        )
    found = evaluate(
        run,
        data=data,
        root=root,
        tta=tta,
        device=device,
        threads=threads,
        workers=workers,
        rewrite=rewrite,
        on_bad_image=on_bad_image,
        trust=trust,
    )
    if as_json:
        print(json.dumps(found, indent=1))
        return
    tables.summaries(found)
    judged = found["test"] or found["val"]
    if judged is not None:
        tables.details(judged, read_document(RunFolder(run).model.spec, MODEL)["classes"])
    tables.next_step(f"longtail compare {shlex.quote(str(run))} ANOTHER_RUN")


@app.command()
def doctor() -> None:
    """Say what this machine can do: devices, threads, precision, versions, optional parts."""
    from longtail.cli.doctor import findings

    for title, rows in findings().items():
        tables.pairs(title, rows)
    tables.next_step("longtail demo")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder of the two runs.")] = Path("runs/demo"),
    threads: Annotated[
        int,
        typer.Option(help="Threads of torch; images this small gain nothing from more than one."),
    ] = 1,
) -> None:
    """Train a plain and a balanced classifier on long-tailed digits, in about a minute, and compare
    them.
    """
    from longtail.cli.demo import perform

    perform(out, threads=threads)
    tables.next_step(
        f"longtail report {shlex.quote(str(out))} --out demo.html",
        "longtail inspect PATH_OF_YOUR_FOLDER_OF_CLASS_FOLDERS",
    )


app.command(
    "sweep",
    cls=flags.advising(
        "expected --set {name}=VALUE or --set {name}=VALUE,VALUE in a sweep, got --{name}: write"
        " it so"
    ),
    help=(
        "Train every combination of recipes, keywords and seeds, or search on validation; compares;"
        " resumable."
    ),
)(flags.signed(sweep, [flags.CONTEXT, *flags.SWEEP.values()]))
app.command("compare")(compare)
app.command("reproduce")(reproduce)
app.command("report")(report)
app.command("predict")(predict)
app.command("export")(export)
app.command("serve")(serve)


if __name__ == "__main__":
    run()
