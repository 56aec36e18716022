"""Write docs/results.md, docs/published.md and figures from the plans and the results.

    python benchmarks/render.py [--check]

Every number in the docs comes from a JSON file here. With `--check` nothing is written: it fails if
a page or a figure differs.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import arms
import published_page
from accuracy import changed_defaults

from longtail.recipes import RECIPES
from longtail.recipes.signatures import read
from longtail.records.row import row_of

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
IMAGES = PAGE.parent / "images"

HEAD = """# Results

`benchmarks/render.py` writes this page from `benchmarks/plans` and `benchmarks/results`; no number is typed
by hand.
A plan states the question and the expected result before its first run.

- Accuracies are percentages of test images (of validation images if the plan says so), for the weights that
  the plan selects, as mean ± sample standard deviation over seeds.
- *balanced* is the mean over classes; *many*, *medium* and *few* are means over the classes of a group.
- Core minutes are minutes times threads, on a machine that often did other work: read them as rough sizes.
  "40 + 31" has 31 more for the teacher or the encoder that an arm started from; rows of such arms without a
  plus leave them out.
"""


def page(folder: Path = HERE) -> str:
    """The page, from the plans and results in a folder."""
    plans = {path.stem: _read(path) for path in sorted((folder / "plans").glob("*.json"))}
    parts, speed = (
        [HEAD],
        {path.stem: _read(path) for path in sorted((folder / "results" / "speed").glob("*.json"))},
    )
    if plans:
        parts.append("\n".join(_overview(plans, folder / "results")))
    for name, plan in plans.items():
        found = {
            path.stem: _read(path) for path in sorted((folder / "results" / name).glob("*.json"))
        }
        if "arms" not in plan:
            found |= {
                question: speed.pop(question)
                for question, runs in [*speed.items()]
                if name in (question, runs["plan"])
            }
        body = (
            _accuracy(plan, list(found.values()), image=f"images/{name}.svg")
            if "arms" in plan
            else _figures(found)
        )
        parts.append("\n".join([f"## {name.replace('_', ' ')}\n", *_question(plan), *body]))
    if speed:
        parts.append("\n".join(["## speed\n", *_figures(speed)]))
    if len(parts) == 1:
        parts.append("No plan has been written yet.\n")
    return "\n".join(parts)


def _overview(plans: Mapping[str, Mapping[str, Any]], results: Path) -> Iterator[str]:
    """Which recipes have numbers, and in which plans."""
    yield "| recipe | measured in | planned, not run yet |"
    yield "|:--|:--|:--|"
    for recipe in dict.fromkeys(read(name).name for name in RECIPES):
        places: dict[bool, list[str]] = {True: [], False: []}
        for name, plan in plans.items():
            runs = [
                arm
                for arm, given in plan.get("arms", {}).items()
                if {**plan.get("settings", {}), **given}.get("recipe") == recipe
            ]
            if runs:
                ran = any(next((results / name).glob(f"{arm}-seed*.json"), None) for arm in runs)
                places[ran].append(f"[{name.replace('_', ' ')}](#{name.replace('_', '-')})")
        yield (
            f"| `{recipe}` | {', '.join(places[True]) or '-'} | {', '.join(places[False]) or '-'} |"
        )
    yield ""


def charts(folder: Path = HERE) -> dict[str, str]:
    """An SVG for each plan of which at least two arms have run."""
    drawn = {}
    for path in sorted((folder / "plans").glob("*.json")):
        plan = _read(path)
        found = [
            _read(result) for result in sorted((folder / "results" / path.stem).glob("*.json"))
        ]
        ran = _by_arm(plan, found) if "arms" in plan else {}
        if len(ran) > 1:
            drawn[path.stem] = arms.figure(
                _panels(ran),
                title=(
                    f"Accuracy of the arms of {path.stem}, overall and by group, a dot for each"
                    " seed"
                ),
            )
    return drawn


def _panels(ran: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, list[float]]]:
    """Percents by panel, arm and seed; a group that is empty has no panel."""
    tests = {arm: [_evaluated(result["row"]) for result in runs] for arm, runs in ran.items()}
    first = next(iter(tests.values()))[0]
    panels = {
        "balanced": {arm: [100 * test["balanced"] for test in runs] for arm, runs in tests.items()}
    }
    for group in (group for group, value in first["groups"].items() if value is not None):
        panels[group] = {
            arm: [100 * test["groups"][group] for test in runs] for arm, runs in tests.items()
        }
    return panels


def _by_arm(
    plan: Mapping[str, Any], found: Sequence[Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
    """The results of each arm that has run, in the order of the plan."""
    by_arm: dict[str, list[Mapping[str, Any]]] = {arm: [] for arm in plan["arms"]}
    for result in found:
        by_arm.setdefault(result["arm"], []).append(result)
    return {arm: runs for arm, runs in by_arm.items() if runs}


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "row" in content:  # committed results keep the format that they were written in
        content["row"] = row_of(content["row"], source=path)
    return content


def _question(plan: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        f"**{what.capitalize()}.** {plan[what]}\n"
        for what in ("question", "expected", "selection", "tuning")
        if what in plan
    )


def _accuracy(
    plan: Mapping[str, Any], found: Sequence[Mapping[str, Any]], *, image: str
) -> Iterator[str]:
    ran = _by_arm(plan, found)
    if ran:
        yield from _table(plan, ran)
        if len(ran) > 1:
            yield (
                "![The table as a figure: a dot for each seed, a bar at each mean, the mean of the"
                f" first arm dashed]({image})\n"
            )
        yield "Commands, for one seed of each arm:\n"
        yield "```bash"
        yield from (_command(runs[0]) for runs in ran.values())
        yield "```\n"
        yield (
            f"{_facts([result['row'] for result in found])}. Commits:"
            f" {', '.join(sorted({result['commit'] for result in found}))}.\n"
        )
    copied = [
        f"`{result['arm']}` with seed {result['row']['seed']} is {result['copied']}"
        for result in found
        if "copied" in result
    ]
    if copied:
        yield f"Copied from another plan with the same command: {'; '.join(copied)}.\n"
    started = [
        f"`{result['arm']}` with seed {result['row']['seed']}: {first}"
        + ("" if score is None else f" ({_percent([score])}% balanced on validation)")
        for result in found
        for first, score in result.get("begun_with", {}).items()
    ]
    if started:
        yield f"Started from: {'; '.join(started)}.\n"
    seeds = {arm: {result["row"]["seed"] for result in runs} for arm, runs in ran.items()}
    missing = {
        arm: [str(seed) for seed in plan["seeds"] if seed not in seeds.get(arm, ())]
        for arm in plan["arms"]
    }
    absent = [f"`{arm}` with seed {', '.join(runs)}" for arm, runs in missing.items() if runs]
    if absent:
        yield f"Not run yet: {'; '.join(absent)}.\n"


def _command(result: Mapping[str, Any]) -> str:
    """The command of a run, with the keywords that were defaults then and are no longer."""
    before, root, after = result["command"].partition(" --root ")
    more = "".join(
        f" --{name.replace('_', '-')} {value}" for name, value in changed_defaults(result).items()
    )
    return f"{before}{more}{root}{after}"


def _table(
    plan: Mapping[str, Any], ran: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    groups = list(_evaluated(next(iter(ran.values()))[0]["row"])["groups"])
    columns = ["arm", "seeds", "top-1", "balanced", *groups, "ECE", "core minutes"]
    yield f"| {' | '.join(columns)} |"
    yield f"|:--|{'--:|' * (len(columns) - 1)}"
    for arm, runs in ran.items():
        tests = [_evaluated(result["row"]) for result in runs]
        named = f"`{arm}`" if arm in plan["arms"] else f"`{arm}` (no longer in the plan)"
        core_minutes = [
            result["row"]["minutes"] * result["row"]["hardware"]["threads"] for result in runs
        ]
        minutes = f"{statistics.fmean(core_minutes):.1f}"
        started = [
            sum(value * result["begun_threads"][first] for first, value in starts.items())
            for result in runs
            if (starts := result.get("begun_minutes", {}))
        ]
        minutes += f" + {statistics.fmean(started):.1f}" if started else ""
        yield f"| {' | '.join([named, str(len(runs)), *_scores(tests, groups), minutes])} |"
        before = [result["row"].get("adjustment", {}).get("test") for result in runs]
        if all(before):
            cells = [f"{named}, before the adjustment", "", *_scores(before, groups), ""]
            yield f"| {' | '.join(cells)} |"
        for head in tests[0].get("heads", {}):
            alone = _scores([test["heads"][head] for test in tests], groups)
            yield f"| {' | '.join([f'{named}, {head} alone', '', *alone, ''])} |"
    yield ""


def _scores(tests: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> Iterator[str]:
    yield _percent([test["top1"] for test in tests])
    yield _percent([test["balanced"] for test in tests])
    yield from (_percent([test["groups"][group] for test in tests]) for group in groups)
    yield f"{statistics.fmean(test['ece'] for test in tests):.3f}"


def _evaluated(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The numbers on test images, or on validation images where a plan chooses by them."""
    numbers: Mapping[str, Any] = row["test"] or row["val"]
    return numbers


def _percent(values: Sequence[float | None]) -> str:
    """Mean ± sample standard deviation over seeds.

    >>> _percent([0.801, 0.803]), _percent([0.5]), _percent([None])
    ('80.2 ± 0.1', '50.0', '-')
    """
    numbers = [100 * value for value in values if value is not None]
    if not numbers:
        return "-"
    deviation = f" ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.1f}{deviation}"


def _facts(rows: Sequence[Mapping[str, Any]]) -> str:
    def every(what: str, values: Iterator[object]) -> str:
        return f"{what}: {', '.join(dict.fromkeys(map(str, values)))}"

    return "; ".join(
        [
            every(
                "Test images" if rows[0]["test"] else "Validation images (no test images)",
                (_evaluated(row)["images"] for row in rows),
            ),
            every("training images", (row["data"]["train_images"] for row in rows)),
            every("parameters", (row["parameters"] for row in rows)),
            every("groups by", (_evaluated(row)["group_rule"] for row in rows)),
            every("test-time augmentation", (row["tta"] for row in rows)),
            every("caveats", (mark for row in rows for mark in row["data"]["caveats"] or ["none"])),
            every("torch", (row["versions"]["torch"] for row in rows)),
        ]
    )


def _figures(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not found:
        yield "Not run yet.\n"
    for name, result in found.items():
        yield f"**{name.replace('_', ' ')}.** {result.get('question', '')}\n"
        yield "| figure | value |"
        yield "|:--|--:|"
        yield from (
            f"| {what} | {value} |"
            for what, value in _flat({**result["figures"], **result.get("machine", {})})
        )
        yield f"\n{result['reason']}" if "reason" in result else ""
        yield f"\n`{result['command']}`\n" if "command" in result else ""


def _flat(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}, ")
        else:
            yield (
                f"{before}{name}".replace("_", " "),
                f"{value:g}" if isinstance(value, float) else str(value),
            )


def main() -> None:
    """Write the page and the figures, or check them."""
    for path, text in {
        PAGE: page(),
        published_page.PAGE: published_page.page(),
        **{IMAGES / f"{name}.svg": drawn for name, drawn in charts().items()},
    }.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} does not say what the results say: run python benchmarks/render.py")


if __name__ == "__main__":
    main()
