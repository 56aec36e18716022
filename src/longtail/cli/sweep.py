"""Many runs of one question: recipes x keywords x seeds, each in a folder of its own. Finished ones are not run again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from longtail.cli import flags, tables
from longtail.cli.jobs import Job, machine, perform
from longtail.recipes.signatures import Recipe, read, unknown
from longtail.recipes.sweeps import SWEEPS


def sweep(**values: Any) -> None:
    """Train every combination of recipes, keywords and seeds, or search on validation, and compare."""
    if values["search"]:
        from longtail.cli import search

        search.perform(values)
        return
    for name in ("trials", "metric"):
        if values[name] is not None:
            raise ValueError(f"expected --{name} with --search, got it alone: add --search KEYWORD=LOW..HIGH, or leave it out")
    from longtail.report import charts

    jobs = plan(values)
    diverged = perform(jobs, at_once=values["jobs"])
    finished = [job.folder for job in jobs if job.folder not in diverged and job.compared]
    named = SWEEPS.get(values["name"], {})
    if finished:
        tables.compared(finished, across=list(named.get("across", ())), format="table", out=None)
    if finished and "plot" in named:
        tables.say(f"plot: {charts.write(named['plot'], finished, jobs[0].folder.parent / values['name'])}")
    if diverged:
        tables.warn(f"{len(diverged)} of {len(jobs)} runs diverged: {', '.join(map(str, diverged))}")
        raise typer.Exit(1)
    folder = jobs[0].folder.parent
    tables.next_step(f"longtail compare {folder} --format csv --out {folder}/comparison.csv")


def plan(values: Mapping[str, Any]) -> list[Job]:
    """The runs that the flags of `longtail sweep`, or a named sweep, ask for; everything is checked before anything runs."""
    spec: dict[str, Any] = {"recipes": (), "data": None, "seeds": (0,), "set": {}, "each": ({},), "with": {}, "first": {}}
    if values["name"] is not None:
        if values["name"] not in SWEEPS:
            raise unknown("sweep", values["name"], SWEEPS)
        spec |= SWEEPS[values["name"]]
    names = values["recipes"].split(",") if values["recipes"] else spec["recipes"]
    data = values["data"] or spec["data"]
    if not names or not data:
        raise ValueError(
            f"expected {'data' if names else 'recipes'} to sweep over, got none: write `longtail sweep RECIPE,RECIPE --data DATA`"
        )
    seeds = integers(values["seeds"]) if values["seeds"] else list(spec["seeds"])
    settings = {name: list(own) for name, own in spec["set"].items()} | pairs(values["set"] or [], "--set KEYWORD=VALUE,VALUE")
    folder = values["out"] or Path("runs") / (values["name"] or "sweep")
    given = [name for name, value in values.items() if value != flags.SWEEP[name].default]
    shared = shared_flags(values) | {name: value for name, value in spec["with"].items() if name not in given}
    spoken = [value for given in settings.values() for value in given]
    spoken += [value for together in spec["each"] for name, value in together.items() if name not in settings]
    jobs = _first(spec["first"], spoken, data=data, seeds=seeds, folder=folder, shared=shared)
    for recipe, together in itertools.product(map(read, names), spec["each"]):
        grid = [[(name, value) for value in _values(recipe, name, given)] for name, given in settings.items()]
        for choice in itertools.product(*grid):
            keywords = recipe.keywords({**together, **dict(choice)})  # refuses here, not after an hour
            varied = [f"{name}={_short(value)}" for name, value in together.items()]
            varied += [f"{name}={_short(value)}" for (name, value), own in zip(choice, grid, strict=True) if len(own) > 1]
            for seed in seeds:
                inner = "-".join([recipe.name.rpartition(":")[2], *varied, f"seed={seed}"])
                begun = {name: _placed(value, spec["first"], folder, seed) for name, value in keywords.items()}
                jobs.append(Job(recipe, data, seed, folder / inner, begun, shared))
    return jobs


def shared_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of the data and the machine that every run has."""
    own = {name: values[name] for name in flags.SWEEP if name in flags.SHARED and name not in ("data", "out")}
    return machine(own, values["jobs"])


def _first(
    wanted: Mapping[str, Any], values: Iterable[Any], *, data: str, seeds: Sequence[int], folder: Path, shared: Mapping[str, Any]
) -> list[Job]:
    """Runs that others begin with, one for each seed; not those that no keyword speaks of, because it was set to something else."""
    spoken = {value for value in values if isinstance(value, str)}
    jobs = []
    for name, own in wanted.items():
        if f"{{{name}}}" in spoken:
            recipe = read(own["recipe"])
            keywords, others = recipe.keywords(own.get("set", {})), {**shared, **own.get("with", {})}
            where = own.get("data", data)
            jobs += [Job(recipe, where, seed, _place(name, folder, seed), keywords, others, compared=False) for seed in seeds]
    return jobs


def _place(name: str, folder: Path, seed: int) -> Path:
    return folder / f"{name}-seed={seed}"


def _placed(value: Any, first: Iterable[str], folder: Path, seed: int) -> Any:
    """The folder of a first run in the place of its {name}."""
    found = [name for name in first if value == f"{{{name}}}"]
    return str(_place(found[0], folder, seed)) if found else value


def integers(text: str) -> list[int]:
    """Seeds, separated by commas, each once."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected seeds such as 0,1,2, got {text!r}") from None
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"expected each seed once, got {text}")
    return numbers


def pairs(given: Sequence[str], expected: str) -> dict[str, str]:
    """What flags such as --set say, by keyword."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, values = pair.partition("=")
        if not equals or not name or not values:
            raise ValueError(f"expected {expected}, got {pair!r}")
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
    return "+".join(map(str, value)) if isinstance(value, list) else str(value).strip("{}").replace("/", "_")
