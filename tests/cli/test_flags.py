"""Three groups of flags that never collide: data, run, and those of the recipe."""

from __future__ import annotations

import inspect

import pytest

from longtail import runs
from longtail.cli import flags
from longtail.cli.inspect import inspect as cli_inspect
from longtail.data.request import data_flags
from longtail.recipes import RECIPES
from longtail.recipes.signatures import RESERVED, read


@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_takes_a_name_of_the_data_or_the_run(name: str) -> None:
    assert not set(read(name).parameters) & RESERVED
    assert not set(read(name).parameters) & set(flags.SWEEP)


def test_the_flags_are_the_parameters_of_train() -> None:
    train = inspect.signature(runs.train, eval_str=True).parameters
    named = {name: value for name, value in train.items() if name not in ("recipe", "keywords")}
    assert set(flags.SHARED) == set(named)
    assert set(flags.SHARED) <= RESERVED
    defaults = {
        name: parameter.default
        for name, parameter in flags.SHARED.items()
        if name not in ("data", "out")
    }
    assert defaults == {name: named[name].default for name in defaults}


def test_the_data_flags_are_the_fields_of_the_request() -> None:
    for name, field in data_flags().items():
        assert flags.SHARED[name].default == field.default
        assert flags.SHARED[name] is flags.DATA_OPTIONS[name]
    assert set(inspect.signature(cli_inspect).parameters) >= {*data_flags()}


def test_flags_of_a_recipe_come_back_as_its_defaults() -> None:
    for name in RECIPES:
        recipe = read(name)
        values = {
            key: flags.option(parameter).default
            for key, parameter in recipe.parameters.items()
            if not parameter.required
        }
        assert flags.keywords(recipe, values) == {
            key: parameter.default
            for key, parameter in recipe.parameters.items()
            if not parameter.required
        }


def test_texts_of_set() -> None:
    assert flags.pairs(["lr=0.1,0.2", "batch-size=3"], "X") == {"lr": "0.1,0.2", "batch_size": "3"}
    for wrong, message in ((["lr"], "expected X, got 'lr'"), (["lr=1", "lr=2"], "given twice")):
        with pytest.raises(ValueError, match=message):
            flags.pairs(wrong, "X")
    assert flags.integers("0,2") == [0, 2]
    with pytest.raises(ValueError, match="expected seeds such as 0,1,2, got 'a'"):
        flags.integers("a")
