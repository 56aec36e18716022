"""Many runs of one question: recipes x keywords x seeds, each in a folder of its own. Finished ones are not run again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.cli import flags, tables
from longtail.recipes.signatures import Recipe, read, unknown
from longtail.recipes.sweeps import SWEEPS


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    recipe: Recipe
    data: str
    seed: int
    folder: Path
    keywords: Mapping[str, Any]
    flags: Mapping[str, Any]  # of the data and the machine
    compared: bool = True  # False: others begin with it


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
    seeds = _integers(values["seeds"]) if values["seeds"] else list(spec["seeds"])
    settings = {name: list(own) for name, own in spec["set"].items()} | _settings(values["set"] or [])
    folder = values["out"] or Path("runs") / (values["name"] or "sweep")
    shared = {name: values[name] for name in flags.SWEEP if name in flags.SHARED and name not in ("data", "out")} | spec["with"]
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


def perform(jobs: Sequence[Job]) -> list[Path]:
    """Train every job; those that diverged are given back, and did not keep the others from running."""
    from longtail.engine.journal import NonFinite
    from longtail.runs import train

    diverged = []
    for number, job in enumerate(jobs, start=1):
        tables.say(f"[{number}/{len(jobs)}] {job.folder}")
        try:
            result = train(job.recipe.target, job.data, job.folder, seed=job.seed, **job.flags, **job.keywords)
            if not result.fresh:
                tables.say("finished before")
        except NonFinite as error:
            tables.warn(str(error))
            diverged.append(job.folder)
    return diverged


def _integers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected seeds such as 0,1,2, got {text!r}") from None
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"expected each seed once, got {text}")
    return numbers


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, values = pair.partition("=")
        if not equals or not name or not values:
            raise ValueError(f"expected --set KEYWORD=VALUE,VALUE, got {pair!r}")
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
