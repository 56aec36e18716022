"""What a recipe asks for is read from its source, and held against what Python itself says."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longtail.deprecated import current_keywords
from longtail.recipes import RECIPES
from longtail.recipes.signatures import Parameter, read

SOURCE = '''
"""Mine."""
from pathlib import Path
from typing import Literal
Kind = Literal["a", "b"]

def mine(run, data, *, flag: bool = True, count: int = 3, rate: float = 0.1, where: Path | None = None, kind: Kind = "a",
         points: tuple[float, ...] = (0.5, 0.8), level: Literal[1, 2] = 1, text: "str | None" = None, needed: int):
    """Do it my way.

    And more.
    """
    return run

def taken(run, data, *, seed: int = 0): ...
def untyped(run, data, *, rate=0.1): ...
def unsupported(run, data, *, rate: dict[str, int] | None = None): ...
def computed(run, data, *, rate: float = 1 / 3): ...
def positional(run, data, rate: float = 0.1): ...
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_recipes.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_recipes"


def test_a_custom_recipe_is_read(module: str) -> None:
    recipe = read(f"{module}:mine")
    assert recipe.headline == "Do it my way."
    assert recipe.source.startswith("def mine(")
    assert recipe.module_source == SOURCE
    kinds = {name: parameter.kind for name, parameter in recipe.parameters.items()}
    assert kinds == {
        "flag": "bool",
        "count": "int",
        "rate": "float",
        "where": "Path | none",
        "kind": "a | b",
        "points": "list of float",
        "level": "1 | 2",
        "text": "str | none",
        "needed": "int",
    }
    assert recipe.keywords({"needed": 4, "points": (1, 2), "where": Path("x")}) == {
        "flag": True,
        "count": 3,
        "rate": 0.1,
        "where": "x",
        "kind": "a",
        "points": [1.0, 2.0],
        "level": 1,
        "text": None,
        "needed": 4,
    }


def test_types_and_defaults_are_followed_to_where_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kinds_of_ours").mkdir()
    (tmp_path / "kinds_of_ours" / "__init__.py").write_text("from .near import Rate, Sometimes\n")
    (tmp_path / "kinds_of_ours" / "near.py").write_text(
        "from typing import Literal\nfrom longtail.recipes.builders import ERASE, Augment as"
        " View\nRate = float\nSometimes = View | None\n"
    )
    (tmp_path / "recipe_of_ours.py").write_text(
        "from sys import maxsize\nfrom kinds_of_ours import Rate, Sometimes\nfrom"
        " longtail.recipes.builders import ERASE, Kept\ndef mine(run, data, *, keep: Kept = 'last',"
        " view: Sometimes = None, erase: Rate = ERASE): ...\ndef unsupported(run, data, *, most:"
        " maxsize = 1): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds = {
        name: (parameter.kind, parameter.default)
        for name, parameter in read("recipe_of_ours:mine").parameters.items()
    }
    assert kinds == {
        "keep": ("last | best", "last"),
        "view": ("weak | jitter | cutout | autoaugment | randaugment | threeaugment | none", None),
        "erase": ("float", 0.25),
    }
    with pytest.raises(
        ValueError,
        match=r"expected bool, int.* for most of recipe_of_ours:unsupported, got maxsize",
    ):
        read("recipe_of_ours:unsupported")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("taken", "rename"),
        ("untyped", "annotate"),
        ("unsupported", "expected bool, int"),
        ("computed", "literal"),
        ("positional", "keywords only"),
        ("min", "did you mean mine"),
    ],
)
def test_a_recipe_that_cannot_become_flags_is_refused(
    module: str, function: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(f"{module}:{function}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expects needed"),
        ({"needed": 1, "cout": 2}, "did you mean count"),
        ({"needed": "1"}, "needed to be int, got '1'"),
        ({"needed": True}, "needed to be int, got True"),
        ({"needed": 1, "kind": "c"}, r"kind to be a \| b, got 'c'"),
        ({"needed": 1, "level": "1"}, "level"),
        ({"needed": 1, "points": "0.5"}, "points to be list of float"),
        ({"needed": 1, "points": [0.5, "x"]}, "points"),
        ({"needed": None}, "needed to be int, got None"),
        ({"needed": 1, "flag": 1}, "flag to be bool"),
    ],
)
def test_wrong_keywords_are_refused(module: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(f"{module}:mine").keywords(given)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("flag", "false", False),
        ("count", "-3", -3),
        ("rate", "1e-3", 1e-3),
        ("where", "none", None),
        ("where", "a/b", "a/b"),
        ("points", "0.1, 0.2", [0.1, 0.2]),
        ("level", "2", 2),
    ],
)
def test_text_is_read(module: str, name: str, text: str, value: Any) -> None:
    assert read(f"{module}:mine").parameters[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flag", "maybe"),
        ("count", "1.5"),
        ("rate", "fast"),
        ("kind", "A"),
        ("points", "0.1,x"),
        ("count", "none"),
        ("rate", "nan"),
        ("rate", "inf"),
    ],
)
def test_text_of_another_type_is_refused(module: str, name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"expected {name} to be .*got '{text}'"):
        read(f"{module}:mine").parameters[name].parse(text)


@pytest.mark.parametrize("name", RECIPES)
def test_the_source_declares_what_the_function_declares(name: str) -> None:
    recipe = read(name)
    module, _, function = recipe.target.partition(":")
    signature = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    declared = {
        key: list(p.default) if isinstance(p.default, tuple) else p.default
        for key, p in signature.items()
        if p.kind is p.KEYWORD_ONLY
    }
    defaults = {key: parameter.default for key, parameter in recipe.parameters.items()}
    assert {key: defaults[key] for key in declared} == declared
    forwards = any(p.kind is p.VAR_KEYWORD for p in signature.values())
    assert forwards or declared.keys() == defaults.keys()
    assert recipe.headline.endswith(".")


RELEASED = json.loads(Path(__file__).with_name("parameters.json").read_text())
"""Name, type and default of every keyword of the first release: run folders rely on them.

Keywords and values may be added: see `longtail.deprecated.EARLIER` for those that change what a run does.
"""


@pytest.mark.parametrize("name", RELEASED)
def test_keywords_and_defaults_are_those_of_the_first_release(name: str) -> None:
    now = {
        key: [parameter.kind, parameter.default] for key, parameter in read(name).parameters.items()
    }
    before = current_keywords(name, RELEASED[name])
    if now["network"] == ["str", "auto"]:  # every run records its network
        before["network"] = now["network"]
    for key, (kind, default) in before.items():
        assert now[key][1] == default, key
        kinds = set(now[key][0].split(" | "))
        assert "str" in kinds or set(kind.split(" | ")) <= kinds, key


FORWARDING = """
from longtail.recipes.builders import fit_stage as fit
def base(run, data, split: list, *, network: str = "a", width: int = 3, hook: dict[str, int] | None = None, **training):
    return fit(run, data, None, name="train", view=None, optimizer=None, schedule=None, epochs=width, **training)
def short(run, data, *, width: int = 7, **keywords):
    \"\"\"Shorter.\"\"\"
    return base(run, data, [], width=width, keep="best", **keywords)
def nowhere(run, data, **keywords): return run
def method(run, data, **keywords): return run.fit(**keywords)
def twice(run, data, **keywords): return base(run, data, [], **keywords) or base(run, data, [], **keywords)
"""


def test_keywords_that_are_passed_on_are_those_of_the_function_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forwarding_recipes.py").write_text(FORWARDING)
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = read("forwarding_recipes:short")
    assert {name: parameter.default for name, parameter in recipe.parameters.items()} == {
        "width": 7,
        "network": "a",
        "batch": 128,
        "accumulate": 1,
        "ema": 0.998,
    }, "not what is set in a call on the way, nor what no flag can say"
    assert [recipe.source.count(f"def {name}(") for name in ("short", "base", "fit_stage")] == [
        1,
        1,
        1,
    ]
    for name in ("nowhere", "method", "twice"):
        with pytest.raises(ValueError, match=r"pass `\*\*keywords` on to one function"):
            read(f"forwarding_recipes:{name}")


def test_every_default_is_of_its_type() -> None:
    for name in RECIPES:
        for parameter in read(name).parameters.values():
            if not parameter.required:
                assert parameter.check(parameter.default) == parameter.default


def test_names_and_aliases() -> None:
    assert read("logit_adjustment") == read("balanced_softmax")
    assert read("longtail.recipes.supervised:balanced_softmax").name == "balanced_softmax"
    with pytest.raises(ValueError, match="did you mean balanced_softmax"):
        read("balanced_sofmax")
    with pytest.raises(ValueError, match="not found"):
        read("no.such.module:recipe")


def test_no_keyword_is_none_by_accident() -> None:
    assert Parameter("rate", "float", 0.1, optional=True).parse("None") is None


def test_a_type_may_be_taken_from_a_neighbour() -> None:
    assert (
        read("ldam").parameters["augment"].choices
        == read("balanced_softmax").parameters["augment"].choices
    )
    assert "autoaugment" in read("ldam").parameters["augment"].choices


def test_a_folder_may_be_given_as_a_path_wherever_its_name_may() -> None:
    assert read("deit_lt").keywords({"teacher": Path("runs/t")})["teacher"] == str(Path("runs/t"))


def test_the_current_folder_is_searched_only_for_custom_recipes(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(
        "def plain(run, data, *, epochs: int = 1) -> None:\n    'A recipe.'\n"
    )
    code = (
        "import sys; from longtail.recipes.signatures import read\n"
        "sys.path[:] = [folder for folder in sys.path if folder]\n"
        "read('cross_entropy'); before = len(sys.path)\n"
        "read('ours:plain'); print(len(sys.path) - before)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ran.stdout.strip() == "1"
