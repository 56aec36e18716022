"""Command-line flags.

Data and run flags are the same for every recipe; the others come from the recipe's signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from longtail.cli import tables
from longtail.data.request import data_flags, data_help, data_types
from longtail.errors import LongtailError, warn
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
Out = Annotated[Path | None, _flag("The run folder; by default runs/RECIPE-DATA-SEED.", RUN)]
Seed = Annotated[int, _flag("Seed of initial weights, mixing, dropout and masks.", RUN)]
ViewSeed = Annotated[
    int | None, _flag("Seed of the order and the augmentation of images; by default --seed.", RUN)
]
Tta = Annotated[
    Literal["none", "flip"],
    _flag("Test-time augmentation: average over the image and its mirror image, or none.", RUN),
]
Adjust = Annotated[
    Literal["none", "validation"],
    _flag(
        "After training, adjust the logits towards rare classes and calibrate them, with the"
        " strength that is best on validation images.",
        RUN,
    ),
]
Plan = Annotated[
    str,
    _flag(
        "Change the number of epochs on the way, such as 3:37,8:35: after 3 epochs 37 in total.",
        RUN,
    ),
]
Minutes = Annotated[
    float | None,
    _flag(
        "Training time: after each epoch, leave out the epochs that there is no time for.",
        RUN,
    ),
]
Device = Annotated[str, _flag("auto, cpu, cuda or mps.", RUN)]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"], _flag("auto uses bf16 where it is both safe and fast.", RUN)
]
Threads = Annotated[
    int | None, _flag("CPU threads of torch; by default torch decides.", RUN, least=1)
]
Trust = Annotated[
    bool,
    _flag(
        "Import a custom network or dataset (package.module:function), which executes its code.",
        RUN,
        "--trust",
    ),
]
Jobs = Annotated[
    int,
    _flag(
        "Number of parallel runs, each a process with one thread unless --threads is given.", RUN
    ),
]
Workers = Annotated[int, _flag("Number of processes that load images.", RUN)]
SaveEvery = Annotated[float, _flag("Minutes between checkpoints within an epoch.", RUN)]
Compile = Annotated[bool, _flag("Compile the network.", RUN, "--compile")]
SyncBatchnorm = Annotated[
    bool, _flag("Synchronize batch norm over all processes.", RUN, "--sync-batchnorm")
]
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
    """The flag for a field of `DataRequest`."""
    kind, flag = data_types()[name], data_flags()[name]
    switch = (f"--{name}/--no-{name}",) if kind == bool | None else ()
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, _flag(data_help()[name], DATA, *switch)],
        default=flag.default,
    )


DATA_OPTIONS: Mapping[str, inspect.Parameter] = {name: data_option(name) for name in data_flags()}
"""The data flags, made from the fields of `DataRequest`."""


def _shared(
    *,
    out: Out = None,
    seed: Seed = 0,
    view_seed: ViewSeed = None,
    tta: Tta = "none",
    adjust: Adjust = "none",
    epoch_plan: Plan = "",
    minutes: Minutes = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    workers: Workers = 0,
    save_every: SaveEvery = 10.0,
    compile: Compile = False,
    sync_batchnorm: SyncBatchnorm = False,
    tensorboard: Tensorboard = False,
    trust: Trust = False,
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
    *, minutes: Annotated[float, _flag("Time budget in minutes for everything.", RUN)] = 45.0
) -> None:
    """Only its signature is used."""


AUTO: Mapping[str, inspect.Parameter] = {
    **SHARED,
    "out": _out("The run folder; by default runs/auto-DATA-SEED."),
    "adjust": SHARED["adjust"].replace(default="validation"),
    **inspect.signature(_auto, eval_str=True).parameters,
}
"""The flags of `longtail train auto`."""


def _swept(
    recipes: Annotated[str | None, typer.Argument(help="Recipes, separated by commas.")] = None,
    *,
    name: Annotated[
        str | None,
        _flag("A named sweep, instead of recipes; other flags override it.", SWEPT),
    ] = None,
    seeds: Annotated[str | None, _flag("Seeds, separated by commas; by default 0.", SWEPT)] = None,
    set: Annotated[
        list[str] | None,
        _flag("KEYWORD=VALUE,VALUE,...; may be repeated. Lists: KEYWORD=1,2;3,4.", SWEPT, "--set"),
    ] = None,
    search: Annotated[
        list[str] | None,
        _flag(
            "KEYWORD=LOW..HIGH, KEYWORD=log:LOW..HIGH or KEYWORD=VALUE,VALUE: search on validation"
            " images instead; may be repeated.",
            SWEPT,
        ),
    ] = None,
    trials: Annotated[
        int | None, _flag("Number of trials of a search; by default 20.", SWEPT)
    ] = None,
    metric: Annotated[
        str | None,
        _flag(
            "The validation score that a search optimizes, such as val/few; by default the"
            " headline score of the data.",
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
        name: parameter
        for name, parameter in SHARED.items()
        if name not in ("data", "seed", "view_seed", "dry_run", "epoch_plan", "minutes")
    },
    "out": _out(
        "The folder of the runs; by default runs/NAME, runs/sweep-DATA or runs/search-RECIPE-DATA."
    ),
}
"""The flags of `longtail sweep`."""


CONTEXT = inspect.Parameter(
    "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
"""For a command that needs to know which flags were given."""


def signed(
    body: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Give a function that takes `**values` a signature, which typer turns into flags."""
    body.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    return body


def option(parameter: Parameter, meaning: str | None = None) -> inspect.Parameter:
    """The flag for a keyword of a recipe.

    Its value is text that `Parameter.parse` reads, as in Python and in a sweep.
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
            _to_text(parameter.default),
            typer.Option(name, metavar=f"<{parameter.kind}>", **shown),
        )
    default = ... if parameter.required else default
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, info],
        default=default,
    )


def _to_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def keywords(recipe: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a recipe from the values of flags; a deprecated name prints a warning."""
    values = dict(values)
    for old, new in recipe.old_names.items():
        if values.get(old) is not None:
            if values[new] != _to_text(recipe.parameters[new].default):
                raise LongtailError(
                    f"--{old} is a deprecated name of --{new}: pass only one of them".replace(
                        "_", "-"
                    )
                )
            values[new] = values[old]
            warn_renamed(old, new)
    return {
        name: parameter.parse(values[name]) if isinstance(values[name], str) else values[name]
        for name, parameter in recipe.parameters.items()
    }


def warn_renamed(old: str, new: str) -> None:
    """Warn on stderr that a keyword was renamed."""
    flags = (f"--{name.replace('_', '-')}" for name in (old, new))
    warn("{} is now {}; the old name will be removed in the next release".format(*flags))


def _old_option(name: str) -> inspect.Parameter:
    """A hidden flag for the deprecated name of a keyword."""
    info = typer.Option(f"--{name.replace('_', '-')}", hidden=True)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str | None, info], default=None
    )


def advising(advice: str) -> type[TyperCommand]:
    """A command class that replies with `advice` to a recipe keyword that is not one of its flags.

    `{name}` in the advice stands for the keyword.
    """

    class Advising(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            try:
                return super().parse_args(ctx, args)
            # Some versions of typer vendor click, so the exception type has no fixed import path
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
    """A command group with `auto` and one command per recipe, built from its source when needed."""

    class Recipes(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return ["auto", *RECIPES]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            if cmd_name == "auto":
                chosen = (
                    "auto chooses --{name} itself: remove it, or run the command that --dry-run"
                    " prints with your changes"
                )
                app.command(cmd_name, cls=advising(chosen))(signed(auto, AUTO.values()))
                return typer.main.get_command(app)
            recipe = read(cmd_name)

            def command(**values: Any) -> None:
                body(recipe, values)

            parameters = [
                *SHARED.values(),
                *(
                    option(parameter, meanings(recipe.name).get(name))
                    for name, parameter in recipe.parameters.items()
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
                    f"expected a recipe before the flags, got {args[0]}: write `longtail train"
                    " RECIPE"
                    f" {args[0]} ...`"
                )
            return super().parse_args(ctx, args)

    return Recipes


def integers(text: str) -> list[int]:
    """Parse seeds separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise LongtailError(f"expected seeds such as 0,1,2, got {text!r}") from None


def pairs(given: Sequence[str], expected: str) -> dict[str, str]:
    """Parse repeated flags such as `--set KEYWORD=VALUE` into a dict."""
    texts: dict[str, str] = {}
    for pair in given:
        name, _, values = pair.partition("=")
        if not name or not values:
            raise LongtailError(f"expected {expected}, got {pair!r}")
        if name.replace("-", "_") in texts:
            raise LongtailError(
                f"{name} is given twice: write all its values in one flag, {name}=VALUE,VALUE"
            )
        texts[name.replace("-", "_")] = values
    return texts
