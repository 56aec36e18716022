"""Experiments: arms, each trained with every seed, and their prerequisites.

Named sweeps (`data/sweeps.toml`), committed plans (`benchmarks/plans`) and published rows are all
read into an `Experiment`, and `jobs.run_jobs` runs any of them.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from longtail.data.request import COMMA_FLAGS, data_flags, parse_field
from longtail.errors import LongtailError
from longtail.naming import unknown
from longtail.recipes.data_files import build, read_toml
from longtail.recipes.published import Published, published
from longtail.recipes.signatures import Recipe, read
from longtail.report.rows import PREREQUISITES

DATA = Path(__file__).parent / "data"

_PREFIX = {"ldam": "teacher_", "paco": "teacher_", "masked_autoencoder": "pretrain_"}
_ENCODER = ("mask", "decoder_width", "decoder_depth", "decoder_heads")
_SHARED_WITH_ENCODER = ("network", "patch", "size")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A recipe with settings, trained once per seed.

    Args:
        recipe: A name, or package.module:function.
        settings: Keywords of the recipe and data flags; others keep their defaults. Text is parsed
            as on the command line; "{NAME}" is the folder of a prerequisite, "{seed}" the seed.
        data: By default that of the experiment.
        seed: A fixed seed, for a run that all seeds of the experiment share.
        folder: The run folder, relative to the experiment; "{seed}" is the seed.
    """

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    seed: int | None = None
    folder: str = "seed={seed}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms on a dataset, each trained with every seed.

    Args:
        data: A known name, or a path.
        arms: The runs to compare.
        seeds: Seeds of every arm.
        flags: Data and run flags of all runs; settings of an arm override them.
        prerequisites: Runs that arms start from, such as a teacher, by name.
    """

    data: str
    arms: Sequence[Arm]
    seeds: Sequence[int] = (0,)
    flags: Mapping[str, Any] = field(default_factory=dict)
    prerequisites: Mapping[str, Arm] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Recipes x settings x seeds; `expand` turns it into an experiment.

    Args:
        data: A known name, or a path.
        recipes: Names of recipes.
        seeds: Seeds of every combination.
        grid: Keyword or data flag -> values, in every combination. One value needs no list; text is
            parsed as on the command line, where commas separate values.
        zip: Settings that change together, in every combination with the grid.
        per_recipe: Recipe -> keywords for that recipe only.
        flags: Data and run flags of all runs.
        prerequisites: Runs that others start from, one per seed: the keyword value
            "{NAME}" stands for the folder of that run.
        across: Fields of the comparison that may differ.
        plot: What to plot at the end: the keywords of
            `report.sweep_figures.write_sweep_figures`, or {"analysis": NAME}, which shows an
            analysis of all runs side by side (`runs.analysing.ANALYSES`, or "reconstructions" of
            masked autoencoders).
    """

    data: str = ""
    recipes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    grid: Mapping[str, Any] = field(default_factory=dict)
    zip: tuple[Mapping[str, Any], ...] = ()
    per_recipe: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    prerequisites: Mapping[str, Arm] = field(default_factory=dict)
    across: tuple[str, ...] = ()
    plot: Mapping[str, str] = field(default_factory=dict)

    @property
    def swept_flags(self) -> list[str]:
        """The data flags that have more than one value."""
        flags = {name: _listed(self.grid[name], name) for name in self.grid if name in data_flags()}
        together = [name for settings in self.zip for name in settings if name in data_flags()]
        return [
            *(name for name, values in flags.items() if len(values) > 1),
            *dict.fromkeys(together),
        ]


@cache
def named_sweeps() -> dict[str, Sweep]:
    """The ablations of the papers by name, for `longtail sweep --name`.

    `like` in an entry takes recipe, data, flags and keywords from a published row.
    """
    content, sweeps = read_toml(DATA / "sweeps.toml"), {}
    shared = content.pop("prerequisites")
    for name, entry in content.items():
        if "like" in entry:
            row = _published(entry["like"], where=name)
            base = {"data": row.data, "recipes": [row.recipe], "seeds": row.seeds}
            entry = {**base, **{key: value for key, value in entry.items() if key != "like"}}
            entry["flags"] = {**_flags(row), **entry.get("flags", {})}
            zipped = {key for settings in entry.get("zip", ()) for key in settings}
            fixed = {key: value for key, value in row.keywords.items() if key not in zipped}
            entry["grid"] = {**fixed, **entry.get("grid", {})}
        wanted = entry.get("prerequisites", ())
        if missing := [key for key in wanted if key not in shared]:
            raise unknown(f"prerequisite of {name}", missing[0], shared)
        entry = {**entry, "prerequisites": {key: shared[key] for key in wanted}}
        sweeps[name] = build(Sweep, entry, where=f"sweep {name}")
    return sweeps


def _published(name: str, *, where: str) -> Published:
    if name not in published():
        raise unknown(f"published row in {where}", name, published())
    return published()[name]


def _flags(row: Published) -> dict[str, Any]:
    """The flags of a published row that are not the defaults."""
    defaults = {"imbalance": None, "protocol": "holdout", "tta": "none", "geometry": None}
    return {name: value for name, value in row.flags().items() if value != defaults[name]}


@cache
def citations() -> dict[str, tuple[str, ...]]:
    """What to cite for a recipe, as BibTeX."""
    content = read_toml(DATA / "citations.toml")
    return {
        recipe: tuple(content["entries"][key] for key in keys)
        for recipe, keys in content["recipes"].items()
    }


def upgrade_plan(path: Path, *, root: Path | None = None) -> Experiment:
    """Read a committed plan of `benchmarks/plans`; `root` is the folder of images.

    The runs of an arm go to PLAN/ARM-seedN. A setting "{work}/PLAN/ARM-seedN" is the run of that
    arm, of this plan or of another in the same folder; null removes a setting of the plan. The
    "{root}" in the data or in a setting is the folder of images.
    """
    prerequisites, arms = {}, []
    plan = _read_plan(path)
    for name in plan["arms"]:
        arm = _planned(plan, path.stem, name, root=root)
        settings = dict(arm.settings)
        for key, value in settings.items():
            if isinstance(value, str) and value.startswith("{work}/"):
                folder = value.removeprefix("{work}/")
                earlier, _, run = folder.partition("/")
                other, _, seed = run.rpartition("-seed")
                source = _planned(_read_plan(path.with_stem(earlier)), earlier, other, root=root)
                start = folder.replace("{seed}", "*")
                number = None if seed == "{seed}" else int(seed)
                prerequisites[start] = replace(source, seed=number)
                settings[key] = f"{{{start}}}"
        arms.append(replace(arm, settings=settings))
    return Experiment(
        data=plan["data"], arms=arms, seeds=plan["seeds"], prerequisites=prerequisites
    )


def _read_plan(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _planned(plan: Mapping[str, Any], name: str, arm: str, *, root: Path | None) -> Arm:
    settings = {**plan["settings"], **plan["arms"][arm]}
    recipe, data = settings.pop("recipe"), str(plan["data"])
    given = {
        key: value.replace("{root}", str(root)) if isinstance(value, str) else value
        for key, value in settings.items()
        if value is not None
    }
    if root is not None and "{root}" not in data:
        given["root"] = str(root)
    return Arm(
        recipe=recipe,
        settings=given,
        data=data.replace("{root}", str(root)),
        folder=f"{name}/{arm}-seed{{seed}}",
    )


def expand(sweep: Sweep) -> Experiment:
    """All combinations of a sweep, with the prerequisites that they use."""
    used = _used_prerequisites(sweep)
    addressed = {key for name in used for key in _addressed(sweep.prerequisites[name].recipe)}
    recipes = [read(name) for name in sweep.recipes]
    labels = [recipe.name.rpartition(":")[2] for recipe in recipes]
    if len({*labels}) < len(labels):  # two modules may have recipes of the same name
        labels = [recipe.name.replace(":", ".") for recipe in recipes]
    prerequisites: dict[str, dict[str, Arm]] = {name: {} for name in used}
    arms = []
    for recipe, label in zip(recipes, labels, strict=True):
        # With `per_recipe`, a keyword in the grid may belong to another recipe only.
        others = [other for other in recipes if other is not recipe and sweep.per_recipe]
        elsewhere = addressed | {key for other in others for key in other.parameters}
        for settings, varied in _combinations(sweep, recipe, elsewhere):
            starts = {
                key: value[1:-1]
                for key, value in settings.items()
                if isinstance(value, str) and value[1:-1] in used and value == f"{{{value[1:-1]}}}"
            }
            for key, name in starts.items():
                start_label, start = _prerequisite(sweep, name, settings, varied)
                prerequisites[name][start_label] = start
                settings[key] = f"{{{start_label}}}"
            # Settings of the prerequisite apply only to it
            if starts:
                settings = {key: value for key, value in settings.items() if key not in addressed}
            text = "-".join([label, *varied.values()])
            arms.append(
                Arm(recipe=recipe.target, settings=settings, folder=f"{text}-seed={{seed}}")
            )
    duplicates = [
        name for name, number in Counter(arm.folder for arm in arms).items() if number > 1
    ]
    if duplicates:
        names = ", ".join(name.removesuffix("-seed={seed}") for name in duplicates[:3])
        raise LongtailError(f"the sweep contains {names} more than once: remove equal values")
    return Experiment(
        data=sweep.data,
        arms=arms,
        seeds=sweep.seeds,
        flags=sweep.flags,
        prerequisites={
            label: arm for starts in prerequisites.values() for label, arm in starts.items()
        },
    )


def _combinations(
    sweep: Sweep, recipe: Recipe, elsewhere: set[str]
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The settings of every arm of a recipe, and the parts of its folder name that vary."""
    names = [
        name
        for name in sweep.grid
        if name in {*data_flags(), *recipe.parameters, *recipe.old_names} or name not in elsewhere
    ]
    values = {name: _values(recipe, name, sweep.grid[name]) for name in names}
    for together in sweep.zip or ({},):
        fixed = {**sweep.per_recipe.get(recipe.name, {}), **together}
        for choice in itertools.product(*values.values()):
            settings = {**fixed, **dict(zip(names, choice, strict=True))}
            varied = [*together, *(name for name in names if len(values[name]) > 1)]
            # Raises now, not after an hour
            checked = recipe.keywords(
                {name: value for name, value in settings.items() if name not in data_flags()}
            )
            shown = {**settings, **checked}
            yield settings, {name: f"{name}={_short(shown[name])}" for name in varied}


def _used_prerequisites(sweep: Sweep) -> list[str]:
    """The prerequisites that some value refers to."""
    values = [value for name, given in sweep.grid.items() for value in _listed(given, name)]
    values += [
        value
        for together in sweep.zip
        for name, value in together.items()
        if name not in sweep.grid
    ]
    return [name for name in sweep.prerequisites if f"{{{name}}}" in values]


def _prerequisite(
    sweep: Sweep, name: str, settings: Mapping[str, Any], varied: Mapping[str, str]
) -> tuple[str, Arm]:
    """The prerequisite of an arm, on the same data: its label and its settings.

    The grid can set its keywords: `teacher_KEYWORD` for a teacher, `pretrain_KEYWORD` and the
    architecture for an encoder.
    """
    start = sweep.prerequisites[name]
    recipe = read(start.recipe)
    shared = _SHARED_WITH_ENCODER if start.recipe == "masked_autoencoder" else ()
    grid = {key: key for key in shared} | _addressed(start.recipe)
    chosen = {}
    for key, keyword in grid.items():
        if key in sweep.grid:
            values = _values(recipe, keyword, sweep.grid[key])
            if len(values) > 1:
                raise LongtailError(
                    f"all arms start from {name}, so {keyword} can have only one value: "
                    "run one sweep per value"
                )
            chosen[keyword] = values[0]
    flags = {
        key: value
        for key, value in settings.items()
        if key in data_flags() and key not in start.settings and start.data is None
    }
    label = "-".join([name, *(varied[key] for key in flags if key in varied)])
    # Its settings override the grid: otherwise a sharp and a flat teacher would become one.
    return label, Arm(
        recipe=start.recipe,
        settings={**flags, **chosen, **start.settings},
        data=start.data,
        folder=f"{PREREQUISITES}/{label}-seed={{seed}}",
    )


@cache
def _addressed(recipe: str) -> dict[str, str]:
    """Keywords of an arm that set the prerequisite -> the keywords of its recipe."""
    names = {f"{_PREFIX[recipe]}{name}": name for name in read(recipe).parameters}
    return names | ({name: name for name in _ENCODER} if recipe == "masked_autoencoder" else {})


def _listed(given: Any, name: str) -> Sequence[Any]:
    """The values of a grid entry: text is split at commas, one value becomes a list."""
    if isinstance(given, str):
        return given.split(";" if name in COMMA_FLAGS else ",")
    return given if isinstance(given, Sequence) else [given]


def _values(recipe: Recipe, name: str, given: Any) -> list[Any]:
    """The values of a keyword or data flag in a grid."""
    many = name not in data_flags() and recipe.parameter(name).many
    parts = given.split(";") if isinstance(given, str) and many else _listed(given, name)
    return [parse_setting(recipe, name, part) for part in parts]


def parse_setting(recipe: Recipe, name: str, value: Any) -> Any:
    """Check a data flag or a keyword of a recipe; text is parsed as on the command line."""
    if name in data_flags():
        return parse_field(name, str(value))
    parameter = recipe.parameter(name)
    return parameter.parse(value) if isinstance(value, str) else parameter.check(value)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value))
    return str(value).strip("{}").replace("/", "_").replace(":", "_")
