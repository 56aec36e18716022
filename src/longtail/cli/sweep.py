"""Many runs of one question: recipes x keywords x seeds, each in a folder of its own. Finished ones are not run again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Any

import typer

from longtail.cli import flags, tables
from longtail.errors import LongtailError
from longtail.experiments.jobs import FIRST, Job, machine, perform
from longtail.experiments.sweeps import SWEEPS
from longtail.naming import unknown
from longtail.recipes.signatures import Recipe, read

PREFIX = {"ldam": "teacher_", "paco": "teacher_", "masked_autoencoder": "pretrain_"}
"""How the keywords of a run that others begin with are called in the others."""


def sweep(context: typer.Context, **values: Any) -> None:
    """Train every combination of recipes, keywords and seeds, or search on validation, and compare."""
    typed = [
        name
        for name in values
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if values["search"]:
        from longtail.experiments import search

        search.perform(values)
        return
    for name in ("trials", "metric"):
        if values[name] is not None:
            raise LongtailError(
                f"expected --{name} with --search, got it alone: add --search KEYWORD=LOW..HIGH, or leave it out"
            )
    from longtail.records.row import read_row
    from longtail.report.comparison import unlike
    from longtail.report.figures import write_sweep_figures

    jobs = plan(values, typed=typed)
    diverged = perform(jobs, at_once=values["jobs"])
    finished = [job.folder for job in jobs if job.folder not in diverged and job.compared]
    named = SWEEPS.get(values["name"], {})
    across = sorted({*named.get("across", ()), *unlike([read_row(own) for own in finished])})
    if finished:
        tables.compared(finished, across=across, format="table", out=None)
    if finished and "plot" in named:
        for path in write_sweep_figures(
            named["plot"], finished, finished[0].parent / values["name"]
        ):
            tables.say(f"plot: {path}")
    if diverged:
        tables.warn(
            f"{len(diverged)} of {len(jobs)} runs diverged: {', '.join(map(str, diverged))}"
        )
        raise typer.Exit(1)
    folder = finished[0].parent
    reference = (
        [finished[0]] if finished[0] != min(finished) else []
    )  # differences are over the first, as in the table above
    words = [
        "longtail",
        "compare",
        *map(str, [*reference, folder]),
        *(word for name in across for word in ("--across", name)),
    ]
    tables.next_step(join([*words, "--out", f"{folder}/comparison.csv"]))


def plan(values: Mapping[str, Any], *, typed: Collection[str] = ()) -> list[Job]:
    """The runs that the flags of `longtail sweep`, or a named sweep, ask for; everything is checked before anything runs.

    Flags in `typed` were given, even where they have their defaults: they hold against those of a named sweep.
    """
    from longtail.runs.identity import check_outside

    spec: dict[str, Any] = {
        "recipes": (),
        "data": None,
        "seeds": (0,),
        "set": {},
        "each": ({},),
        "own": {},
        "with": {},
        "first": {},
    }
    if values["name"] is not None:
        if values["name"] not in SWEEPS:
            raise unknown("sweep", values["name"], SWEEPS)
        spec |= SWEEPS[values["name"]]
    names = values["recipes"].split(",") if values["recipes"] else spec["recipes"]
    data = values["data"] or spec["data"]
    if not names or not data:
        raise LongtailError(
            f"expected {'data' if names else 'recipes'} to sweep over, got none: write `longtail sweep RECIPE,RECIPE --data DATA`"
        )
    seeds = integers(values["seeds"]) if values["seeds"] else list(spec["seeds"])
    settings = {name: list(own) for name, own in spec["set"].items()} | pairs(
        values["set"] or [], "--set KEYWORD=VALUE,VALUE"
    )
    folder = values["out"] or (
        Path("runs") / values["name"] if values["name"] else flags.usual_out("sweep", data)
    )
    check_outside(folder, data)
    given = [
        name
        for name, value in values.items()
        if value != flags.SWEEP[name].default or name in typed
    ]
    shared = shared_flags(values) | {
        name: value for name, value in spec["with"].items() if name not in given
    }
    spoken = [
        value
        for given in settings.values()
        for value in (given.split(",") if isinstance(given, str) else given)
    ]
    spoken += [
        value
        for together in spec["each"]
        for name, value in together.items()
        if name not in settings
    ]
    jobs = _first(
        spec["first"], spoken, settings, data=data, seeds=seeds, folder=folder, shared=shared
    )
    said = (
        {name for own in spec["first"].values() for name in _addressed(own["recipe"])}
        if jobs
        else set[str]()
    )
    recipes = [read(name) for name in names]
    labels = [own.name.rpartition(":")[2] for own in recipes]
    if len({*labels}) < len(labels):  # two modules may have a recipe of one name each
        labels = [own.name.replace(":", ".") for own in recipes]
    for (recipe, label), together in itertools.product(
        zip(recipes, labels, strict=True), spec["each"]
    ):
        # A named sweep may speak to its recipes one by one, and then so may what is typed beside it.
        others = [own for own in recipes if own is not recipe and spec["own"]]
        heard = {*said, *(name for own in others for name in own.parameters)}
        meant = [name for name in settings if name in recipe.parameters or name not in heard]
        grid = [
            [(name, value) for value in _values(recipe, name, settings[name])] for name in meant
        ]
        for choice in itertools.product(*grid):
            keywords = recipe.keywords(
                {**spec["own"].get(recipe.name, {}), **together, **dict(choice)}
            )  # refuses here, not after an hour
            varied = [f"{name}={_short(keywords[name])}" for name in together]
            varied += [
                f"{name}={_short(value)}"
                for (name, value), own in zip(choice, grid, strict=True)
                if len(own) > 1
            ]
            for seed in seeds:
                inner = "-".join([label, *varied, f"seed={seed}"])
                begun = {
                    name: _placed(value, spec["first"], folder, seed)
                    for name, value in keywords.items()
                }
                if (
                    begun != keywords
                ):  # what was said about the run that this one begins with was said to that run
                    begun |= {
                        name: recipe.parameters[name].default for name in said if name in begun
                    }
                jobs.append(Job(recipe, data, seed, folder / inner, begun, shared))
    twice = [own for own, number in Counter(str(job.folder) for job in jobs).items() if number > 1]
    if twice:
        raise LongtailError(
            f"expected every run once, got {', '.join(twice[:3])} more than once: leave out what is the same"
        )
    return jobs


def shared_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of the data and the machine that every run has."""
    own = {
        name: values[name]
        for name in flags.SWEEP
        if name in flags.SHARED and name not in ("data", "out")
    }
    return machine(own, values["jobs"])


def _first(
    wanted: Mapping[str, Any],
    values: Iterable[Any],
    settings: Mapping[str, Any],
    *,
    data: str,
    seeds: Sequence[int],
    folder: Path,
    shared: Mapping[str, Any],
) -> list[Job]:
    """Runs that others begin with, one for each seed; not those that no keyword speaks of, because it was set to something else.

    What `--set` says about them holds for them: of a teacher `teacher_KEYWORD`, of an encoder `pretrain_KEYWORD` and its architecture.
    """
    spoken = {value for value in values if isinstance(value, str)}
    jobs = []
    for name, own in wanted.items():
        if f"{{{name}}}" in spoken:
            recipe = read(own["recipe"])
            alike = ("network", "patch", "size") if own["recipe"] == "masked_autoencoder" else ()
            theirs = {key: value for key, value in settings.items() if key in alike}
            theirs |= {
                known: settings[key]
                for key, known in _addressed(own["recipe"]).items()
                if key in settings
            }
            chosen = {key: _values(recipe, key, value) for key, value in theirs.items()}
            if several_of := [key for key, value in chosen.items() if len(value) > 1]:
                raise LongtailError(
                    f"expected one {several_of[0]} for {name}, which all arms begin with, got several: sweep them apart"
                )
            # What tells such runs apart is not for --set: a sharp and a flat teacher would become one.
            keywords = recipe.keywords(
                {**{key: value[0] for key, value in chosen.items()}, **own.get("set", {})}
            )
            others = {**shared, **own.get("with", {})}
            where = own.get("data", data)
            jobs += [
                Job(
                    recipe,
                    where,
                    seed,
                    _place(name, folder, seed),
                    keywords,
                    others,
                    compared=False,
                )
                for seed in seeds
            ]
    return jobs


def _place(name: str, folder: Path, seed: int) -> Path:
    return folder / FIRST / f"{name}-seed={seed}"


def _addressed(first: str) -> dict[str, str]:
    """Keywords of the others that are said to the recipe they begin with, and its own names for them."""
    known = read(first).parameters
    alone = (
        ("mask", "decoder_width", "decoder_depth", "decoder_heads")
        if first == "masked_autoencoder"
        else ()
    )
    return {f"{PREFIX[first]}{name}": name for name in known} | {name: name for name in alone}


def _placed(value: Any, first: Iterable[str], folder: Path, seed: int) -> Any:
    """The folder of a first run in the place of its {name}."""
    found = [name for name in first if value == f"{{{name}}}"]
    return str(_place(found[0], folder, seed)) if found else value


def integers(text: str) -> list[int]:
    """Seeds, separated by commas, each once."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise LongtailError(f"expected seeds such as 0,1,2, got {text!r}") from None
    if len(set(numbers)) < len(numbers):
        raise LongtailError(f"expected each seed once, got {text}")
    return numbers


def pairs(given: Sequence[str], expected: str) -> dict[str, str]:
    """What flags such as --set say, by keyword."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, values = pair.partition("=")
        if not equals or not name or not values:
            raise LongtailError(f"expected {expected}, got {pair!r}")
        if name.replace("-", "_") in found:
            raise LongtailError(
                f"expected {name} once, got it twice: write all its values in one, {name}=VALUE,VALUE"
            )
        found[name.replace("-", "_")] = values
    return found


def _values(recipe: Recipe, name: str, given: str | Sequence[Any]) -> Sequence[Any]:
    if name not in recipe.parameters:
        raise unknown(f"keyword of {recipe.name}", name, recipe.parameters)
    if not isinstance(given, str):
        return given
    parameter = recipe.parameters[name]
    return [parameter.parse(part) for part in given.split(";" if parameter.many else ",")]


def _short(value: Any) -> str:
    return (
        "+".join(map(str, value))
        if isinstance(value, list)
        else str(value).strip("{}").replace("/", "_").replace(":", "_")
    )
