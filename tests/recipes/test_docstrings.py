"""A docstring of a recipe has a command that parses and numbers that were measured."""

import json
import re
import shlex
import statistics
from pathlib import Path

import pytest

from longtail.data.request import data_flags
from longtail.recipes import RECIPES
from longtail.recipes.signatures import read

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
OURS = re.compile(r"(\d+\.\d)%[^%]*?\((\w+)/([\w.-]+)\)")


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_command_in_the_docstring_is_one_that_is_understood(name: str) -> None:
    recipe = read(name)
    (line,) = [
        line for line in recipe.doc.splitlines() if line.strip().startswith("longtail train ")
    ][:1]
    words = shlex.split(line)
    assert words[2] in RECIPES
    flags = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    assert "data" in flags
    assert flags - {"data", "out", "tta", "seed", *data_flags()} <= set(recipe.parameters)


@pytest.mark.parametrize("name", [name for name in sorted(RECIPES) if "Ours: " in read(name).doc])
def test_our_numbers_are_the_means_of_committed_results(name: str) -> None:
    doc = " ".join(read(name).doc.split())
    claims = OURS.findall(doc.partition("Ours: ")[2])
    assert claims, (
        "after 'Ours: ' comes at least one number with its plan and arm, such as 81.0%"
        " (cifar10_lt_baselines/balanced-paper)"
    )
    for number, plan, arm in claims:
        rows = [
            json.loads(path.read_text())["row"]
            for path in (RESULTS / plan).glob(f"{arm}-seed*.json")
        ]
        assert rows, f"no results of {plan}/{arm}"
        assert f"{100 * statistics.mean(row['test']['top1'] for row in rows):.1f}" == number


@pytest.mark.parametrize(
    "name", [name for name in sorted(RECIPES) if "Ours: " not in read(name).doc]
)
def test_a_recipe_that_was_never_measured_states_no_cost_in_numbers(name: str) -> None:
    doc = " ".join(read(name).doc.split())
    assert not re.search(r"\d", doc.partition("Cost: ")[2].partition(". ")[0])
