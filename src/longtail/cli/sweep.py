"""`longtail sweep`: every combination, or a search."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from shlex import join
from typing import Any

import typer

from longtail.cli import flags, tables
from longtail.errors import LongtailError
from longtail.records.layout import SearchFolder

_NOT_FLAGS = ("data", "out")


def sweep(context: typer.Context, **values: Any) -> None:
    """Train every combination of recipes, keywords and seeds, or search on validation, and compare."""
    typed = [
        name
        for name in values
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    arguments = {**given_flags(values, typed), "out": values["out"], "jobs": values["jobs"]}
    settings = flags.pairs(values["set"] or [], "--set KEYWORD=VALUE,VALUE")
    seeds = flags.integers(values["seeds"]) if values["seeds"] else None
    if values["search"]:
        _search(values, {**arguments, "settings": settings, "seeds": seeds or [0]})
        return
    for name in ("trials", "metric"):
        if values[name] is not None:
            raise LongtailError(
                f"--{name} has no effect without --search: add --search KEYWORD=LOW..HIGH, "
                "or leave it out"
            )
    from longtail.experiments.sweeps import sweep as run

    found = run(
        values["recipes"],
        values["data"],
        name=values["name"],
        seeds=seeds,
        grid=settings,
        progress=tables,
        **arguments,
    )
    if found.table is not None:
        tables.print_comparison(found.table)
    for path in found.plots:
        tables.say(f"plot: {path}")
    _stop_if_diverged(found.diverged, len(found.runs) + len(found.diverged))
    # Differences are over the first, as in the table above.
    is_first = found.by or found.runs[0] == min(found.runs)
    first = [] if is_first else [found.runs[0]]
    options = [f"--across={name}" for name in found.across] + [f"--by={name}" for name in found.by]
    words = ["longtail", "compare", *map(str, [*first, found.folder]), *options]
    tables.next_step(join([*words, "--out", f"{found.folder}/comparison.csv"]))


def _search(values: Mapping[str, Any], arguments: dict[str, Any]) -> None:
    from longtail.experiments.search import search

    names = (values["recipes"] or "").split(",")
    if values["name"] is not None or len(names) != 1 or not names[0] or not values["data"]:
        raise LongtailError(
            "expected one recipe and its data to search, got others: "
            "write `longtail sweep RECIPE --data DATA --search ...`"
        )
    space = flags.pairs(values["search"], "--search KEYWORD=LOW..HIGH or KEYWORD=VALUE,VALUE")
    chosen = {name: values[name] for name in ("trials", "metric") if values[name] is not None}
    found = search(names[0], values["data"], space, progress=tables, **chosen, **arguments)
    tables.print_comparison(found.table)
    tables.say(f"the winner: {found.command}")
    _stop_if_diverged(found.diverged, len(found.runs) + len(found.diverged))
    final = [str(SearchFolder(found.folder).final)] if len(found.runs) > 1 else []
    options = [f"--across={name}" for name in found.across]
    tables.next_step(
        join(["longtail", "compare", *final, str(found.best), *options]),
        join(["longtail", "report", str(found.best)]),
    )


def _stop_if_diverged(diverged: Sequence[object], runs: int) -> None:
    if diverged:
        tables.warn(f"{len(diverged)} of {runs} runs diverged: {', '.join(map(str, diverged))}")
        raise typer.Exit(1)


def given_flags(values: Mapping[str, Any], typed: Collection[str] = ()) -> dict[str, Any]:
    """The data and run flags that were given: these hold against those of a named sweep."""
    return {
        name: values[name]
        for name in flags.SWEEP
        if name in flags.SHARED
        and name not in _NOT_FLAGS
        and (name in typed or values[name] != flags.SWEEP[name].default)
    }
