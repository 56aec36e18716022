"""Flags: those of the data and the run are the same for every recipe, the rest is the recipe's own
signature.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from longtail.cli import tables
from longtail.data.request import data_flags, data_help, data_types
from longtail.errors import LongtailError
from longtail.recipes import RECIPES
from longtail.recipes.keywords import KEYWORDS, meanings
from longtail.recipes.signatures import Parameter, Recipe, read

DATA, RUN, SWEPT = "Data", "Run", "Sweep"


def _flag(text: str, panel: str, *names: str, least: int | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, min=least)


Data = Annotated[
    str,
    _flag("A known name (see `longtail list`), a folder of class folders, or a list file.", DATA),
]
Root = Annotated[Path | None, _flag(data_help()["root"], DATA)]
OnBadImage = Annotated[Literal["refuse", "skip"], _flag(data_help()["on_bad_image"], DATA)]
Out = Annotated[
    Path | None, _flag("The folder of the run; runs/RECIPE-DATA-SEED unless given.", RUN)
]
Seed = Annotated[int, _flag("Weights, mixing, dropout, masks.", RUN)]
ViewSeed = Annotated[
    int | None, _flag("Order and views of the images; the seed unless given.", RUN)
]
Tta = Annotated[Literal["none", "flip"], _flag("Averaging at test time.", RUN)]
Adjust = Annotated[
    Literal["none", "validation"],
    _flag(
        "Shift logits towards rare classes and calibrate them after training, as far as validation"
        " images ask for it.",
        RUN,
    ),
]
Device = Annotated[str, _flag("auto, cpu, cuda or mps.", RUN)]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"], _flag("auto is bf16 where that is both safe and fast.", RUN)
]
Threads = Annotated[
    int | None, _flag("Threads of torch on the CPU; its own choice unless given.", RUN, least=1)
]
Trust = Annotated[
    bool,
    _flag(
        "Import a network or data of one's own (package.module:function), which runs its code.",
        RUN,
        "--trust",
    ),
]
Jobs = Annotated[
    int, _flag("Runs at once, each a process with one thread unless --threads is given.", RUN)
]
Workers = Annotated[int, _flag("Processes that read images.", RUN)]
SaveEvery = Annotated[float, _flag("Minutes between checkpoints within an epoch.", RUN)]
Compile = Annotated[bool, _flag("Compile the network.", RUN, "--compile")]
SyncBatchnorm = Annotated[bool, _flag("Batch-norm over all processes.", RUN, "--sync-batchnorm")]
Tensorboard = Annotated[bool, _flag("Also write TensorBoard files.", RUN, "--tensorboard")]
DryRun = Annotated[
    bool,
    _flag(
        "Send a few batches through every stage and estimate the cost; write nothing.",
        RUN,
        "--dry-run",
    ),
]


def data_option(name: str) -> inspect.Parameter:
    """The flag of a field of the data request."""
    kind, flag = data_types()[name], data_flags()[name]
    switch = (f"--{name}/--no-{name}",) if kind == bool | None else ()
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, _flag(data_help()[name], DATA, *switch)],
        default=flag.default,
    )


DATA_OPTIONS: Mapping[str, inspect.Parameter] = {name: data_option(name) for name in data_flags()}
"""The flags of the data, made of the fields of `DataRequest`."""


def _shared(
    *,
    out: Out = None,
    seed: Seed = 0,
    view_seed: ViewSeed = None,
    tta: Tta = "none",
    adjust: Adjust = "none",
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    workers: Workers = 0,
    save_every: SaveEvery = 10.0,
    compile: Compile = False,
    sync_batchnorm: SyncBatchnorm = False,
    tensorboard: Tensorboard = False,
    dry_run: DryRun = False,
) -> None:
    """Only its signature is used."""


SHARED: Mapping[str, inspect.Parameter] = {
    "data": inspect.Parameter("data", inspect.Parameter.KEYWORD_ONLY, annotation=Data),
    **DATA_OPTIONS,
    **inspect.signature(_shared, eval_str=True).parameters,
}
"""The data and run flags of `longtail train`, which `longtail.train` takes under the same names."""


def _out(text: str) -> inspect.Parameter:
    return SHARED["out"].replace(annotation=Annotated[Path | None, _flag(text, RUN)])


def _auto(
    *, minutes: Annotated[float, _flag("How long it may take, all in all.", RUN)] = 45.0
) -> None:
    """Only its signature is used."""


AUTO: Mapping[str, inspect.Parameter] = {
    **SHARED,
    "out": _out("The folder of the run; runs/auto-DATA-SEED unless given."),
    "adjust": SHARED["adjust"].replace(default="validation"),
    **inspect.signature(_auto, eval_str=True).parameters,
}
"""The flags of `longtail train auto`."""


def _swept(
    recipes: Annotated[
        str | None, typer.Argument(help="One recipe or several, separated by commas.")
    ] = None,
    *,
    name: Annotated[
        str | None,
        _flag("A sweep that has a name, instead of recipes; other flags override it.", SWEPT),
    ] = None,
    seeds: Annotated[
        str | None, _flag("Seeds, separated by commas; 0 unless given.", SWEPT)
    ] = None,
    set: Annotated[
        list[str] | None,
        _flag("KEYWORD=VALUE,VALUE,...; may be repeated. Lists: KEYWORD=1,2;3,4.", SWEPT, "--set"),
    ] = None,
    search: Annotated[
        list[str] | None,
        _flag(
            "KEYWORD=LOW..HIGH, KEYWORD=log:LOW..HIGH or KEYWORD=VALUE,VALUE: search instead, on"
            " validation; may be repeated.",
            SWEPT,
        ),
    ] = None,
    trials: Annotated[
        int | None, _flag("How many settings a search tries; 20 unless given.", SWEPT)
    ] = None,
    metric: Annotated[
        str | None,
        _flag(
            "The validation score that a search chooses by, such as val/few; the headline unless"
            " given.",
            SWEPT,
        ),
    ] = None,
    jobs: Jobs = 1,
    data: Annotated[
        str | None, _flag("A known name, a folder of class folders, or a list file.", DATA)
    ] = None,
) -> None:
    """Only its signature is used."""


SWEEP: Mapping[str, inspect.Parameter] = {
    **inspect.signature(_swept, eval_str=True).parameters,
    **{
        name: own
        for name, own in SHARED.items()
        if name not in ("data", "seed", "view_seed", "dry_run")
    },
    "out": _out(
        "The folder of the runs; runs/NAME, runs/sweep-DATA or runs/search-RECIPE-DATA unless"
        " given."
    ),
}
"""The flags of `longtail sweep`."""


CONTEXT = inspect.Parameter(
    "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
"""For a command that asks which of its flags were typed."""


def signed(
    body: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Give a function that takes `**values` the signature that typer turns into flags."""
    body.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    return body


def option(parameter: Parameter, meaning: str | None = None) -> inspect.Parameter:
    """The flag of a recipe's keyword. Text, read by `Parameter.parse`: the same words as in Python
    and in a sweep.
    """
    name = f"--{parameter.name.replace('_', '-')}"
    shown: dict[str, Any] = {"help": meaning, "rich_help_panel": "Recipe"}
    kind: type
    if parameter.scalar == "bool" and not parameter.many and not parameter.optional:
        kind, default, info = (
            bool,
            parameter.default,
            typer.Option(f"{name}/--no-{name[2:]}", **shown),
        )
    else:
        kind, default, info = (
            str,
            _said(parameter.default),
            typer.Option(name, metavar=f"<{parameter.kind}>", **shown),
        )
    default = ... if parameter.required else default
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, info],
        default=default,
    )


def _said(value: Any) -> str:
    return (
        ",".join(map(str, value))
        if isinstance(value, list)
        else "none"
        if value is None
        else str(value)
    )


def keywords(recipe: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags say about a recipe's keywords; an old name gives a warning."""
    values = dict(values)
    for old, new in recipe.old_names.items():
        if values.get(old) is not None:
            if values[new] != _said(recipe.parameters[new].default):
                raise LongtailError(
                    f"--{old} is the old name of --{new}: pass one of them".replace("_", "-")
                )
            values[new] = values[old]
            warn_renamed(old, new)
    return {
        name: own.parse(values[name]) if isinstance(values[name], str) else values[name]
        for name, own in recipe.parameters.items()
    }


def warn_renamed(old: str, new: str) -> None:
    """Print one line on stderr about the old name of a keyword."""
    flags = (f"--{name.replace('_', '-')}" for name in (old, new))
    print(
        "warning: {} is now {}; the old name goes with the next release".format(*flags),
        file=sys.stderr,
    )


def _old_option(name: str) -> inspect.Parameter:
    """A hidden flag for the old name of a keyword."""
    info = typer.Option(f"--{name.replace('_', '-')}", hidden=True)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str | None, info], default=None
    )


def advising(advice: str) -> type[TyperCommand]:
    """A command that answers a recipe's keyword, which is no flag of its own, with an advice about
    {name}.
    """

    class Advising(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            try:
                return super().parse_args(ctx, args)
            # Typer has its own copy of click in some versions: the type has no one place
            except Exception as error:
                name = (
                    str(getattr(error, "option_name", ""))
                    .removeprefix("--")
                    .removeprefix("no-")
                    .replace("-", "_")
                )
                if name not in KEYWORDS:
                    raise
                raise LongtailError(advice.format(name=name)) from None

    return Advising


def recipe_group(
    body: Callable[[Recipe, dict[str, Any]], None], auto: Callable[..., None]
) -> type[TyperGroup]:
    """A group of commands with one command for each recipe, made from its source when it is asked
    for, and one that chooses.
    """

    class Recipes(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return ["auto", *RECIPES]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            if cmd_name == "auto":
                chosen = (
                    "expected no --{name}, got it: auto chooses it. --dry-run prints the line that"
                    " it would train, to change what you like"
                )
                app.command(cmd_name, cls=advising(chosen))(signed(auto, AUTO.values()))
                return typer.main.get_command(app)
            recipe = read(cmd_name)

            def command(**values: Any) -> None:
                body(recipe, values)

            parameters = [
                *SHARED.values(),
                *(
                    option(own, meanings(recipe.name).get(name))
                    for name, own in recipe.parameters.items()
                ),
                *map(_old_option, recipe.old_names),
            ]
            app.command(
                cmd_name,
                help=escape(tables.unwrapped(recipe.doc)),
                short_help=escape(recipe.headline),
            )(signed(command, parameters))
            return typer.main.get_command(app)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if args and args[0].startswith("-") and args[0] != "--help":
                raise LongtailError(
                    f"expected the recipe first, got {args[0]}: write `longtail train RECIPE"
                    f" {args[0]} ...`"
                )
            return super().parse_args(ctx, args)

    return Recipes


def integers(text: str) -> list[int]:
    """Seeds, separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise LongtailError(f"expected seeds such as 0,1,2, got {text!r}") from None


def pairs(given: Sequence[str], expected: str) -> dict[str, str]:
    """The texts of flags such as --set, by keyword."""
    texts: dict[str, str] = {}
    for pair in given:
        name, _, values = pair.partition("=")
        if not name or not values:
            raise LongtailError(f"expected {expected}, got {pair!r}")
        if name.replace("-", "_") in texts:
            raise LongtailError(
                f"expected {name} once, got it twice: write all its values in one, "
                f"{name}=VALUE,VALUE"
            )
        texts[name.replace("-", "_")] = values
    return texts
