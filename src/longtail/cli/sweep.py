"""`longtail sweep`: train every combination, or search on validation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from shlex import join
from typing import Any

import typer

from longtail.cli import flags, results, tables
from longtail.errors import LongtailError
from longtail.records.layout import SearchFolder

_NOT_FLAGS = ("data", "out")


def sweep(context: typer.Context, **values: Any) -> None:
    """Train every combination of recipes, keywords and seeds, or search on validation; compare."""
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
                "or remove it"
            )
    from longtail.experiments.sweeps import sweep as run

    result = run(
        values["recipes"],
        values["data"],
        name=values["name"],
        seeds=seeds,
        grid=settings,
        progress=tables,
        **arguments,
    )
    if result.table is not None:
        results.print_comparison(result.table)
    for path in result.plots:
        tables.say(f"plot: {path}")
    _stop_if_diverged(result.diverged, len(result.runs) + len(result.diverged))
    # The first run is the baseline, as in the table above.
    is_first = result.by or result.runs[0] == min(result.runs)
    first = [] if is_first else [result.runs[0]]
    options = [f"--across={name}" for name in result.across] + [
        f"--by={name}" for name in result.by
    ]
    words = ["longtail", "compare", *map(str, [*first, result.folder]), *options]
    tables.next_step(join([*words, "--out", f"{result.folder}/comparison.csv"]))


def _search(values: Mapping[str, Any], arguments: dict[str, Any]) -> None:
    from longtail.experiments.search import search

    names = (values["recipes"] or "").split(",")
    if values["name"] is not None or len(names) != 1 or not names[0] or not values["data"]:
        raise LongtailError(
            "--search needs one recipe and --data, and no --name: "
            "write `longtail sweep RECIPE --data DATA --search ...`"
        )
    space = flags.pairs(values["search"], "--search KEYWORD=LOW..HIGH or KEYWORD=VALUE,VALUE")
    chosen = {name: values[name] for name in ("trials", "metric") if values[name] is not None}
    result = search(names[0], values["data"], space, progress=tables, **chosen, **arguments)
    results.print_comparison(result.table)
    tables.say(f"best settings: {result.command}")
    _stop_if_diverged(result.diverged, len(result.runs) + len(result.diverged))
    final = [str(SearchFolder(result.folder).final)] if len(result.runs) > 1 else []
    options = [f"--across={name}" for name in result.across]
    tables.next_step(
        join(["longtail", "compare", *final, str(result.best), *options]),
        join(["longtail", "report", str(result.best)]),
    )


def _stop_if_diverged(diverged: Sequence[object], runs: int) -> None:
    from longtail.experiments.jobs import is_first_process

    if diverged and is_first_process():
        tables.warn(f"{len(diverged)} of {runs} runs diverged: {', '.join(map(str, diverged))}")
        raise typer.Exit(1)


def given_flags(values: Mapping[str, Any], typed: Collection[str] = ()) -> dict[str, Any]:
    """The data and run flags that were given; they override those of a named sweep."""
    return {
        name: values[name]
        for name in flags.SWEEP
        if name in flags.SHARED
        and name not in _NOT_FLAGS
        and (name in typed or values[name] != flags.SWEEP[name].default)
    }
