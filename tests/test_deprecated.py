"""Old spellings of public names still work, and say what they are called now."""

from __future__ import annotations

import importlib
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import longtail
from longtail.cli.main import app
from longtail.deprecated import KEYWORDS, MOVED, RENAMED, current_keywords
from longtail.recipes import RECIPES
from longtail.recipes.signatures import read
from longtail.records.kinds import read_recipe
from longtail.records.row import read_row
from longtail.report.comparison import compare
from longtail.runs import train


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_moved_module_is_imported_from_its_old_path(old: str, new: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        module = importlib.import_module(old)
    there = importlib.import_module(new)
    public = [name for name in vars(there) if not name.startswith("_")]
    assert public
    assert all(getattr(module, name) is getattr(there, name) for name in public)


NAMES = [(module, old, new) for module, names in RENAMED.items() for old, new in names.items()]


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_a_renamed_attribute_is_read_by_its_old_name(module: str, old: str, new: str) -> None:
    place, _, name = new.rpartition(".")
    there = importlib.import_module(place or module)
    with pytest.warns(
        DeprecationWarning, match=rf"{module}\.{old} is now {there.__name__}\.{name}"
    ):
        assert getattr(importlib.import_module(module), old) is getattr(there, name)


def test_old_names_are_imported_with_from_in_a_moved_module() -> None:
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from longtail.data.opening import open_to_judge\n"
        "from longtail.runs.again import again\n"
        "from longtail.data.views import Weak\n"
        "print(open_to_judge.__name__, again.__name__, Weak.__name__)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["open_for_evaluation", "restore_method", "CropFlip"]


def test_unknown_names_are_unknown_and_modules_keep_their_source() -> None:
    from longtail.data import views

    with pytest.raises(AttributeError, match="no attribute 'Wreak'"):
        _ = views.Wreak  # type: ignore[attr-defined]
    assert "class CropFlip" in inspect.getsource(views)
    assert longtail.__version__


QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}
OLD: dict[str, Any] = {"batchformer": "on", "plain": 1.5, "attended": 1.0, "batchformer_rate": 0.3}
NEW = current_keywords("balanced_softmax", OLD)


def test_old_keywords_are_no_keywords_any_more() -> None:
    parameters = {name for recipe in RECIPES for name in read(recipe).parameters}
    assert not parameters & KEYWORDS.keys()
    assert set(KEYWORDS.values()) <= parameters


def test_old_keywords_are_accepted_and_both_at_once_are_not() -> None:
    recipe = read("balanced_softmax")
    assert recipe.keywords(OLD) == recipe.keywords(NEW)
    assert recipe.parameter("plain") is recipe.parameter("plain_weight")
    with pytest.raises(
        ValueError, match="plain is a deprecated name of plain_weight: pass only one of them"
    ):
        recipe.keywords({"plain": 1.0, "plain_weight": 1.0})
    assert read("ride").keywords({"heat": 0.1})["class_temperature"] == 0.1


@pytest.fixture(scope="module")
def old_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose files have the old names, as earlier versions wrote them."""
    folder = tmp_path_factory.mktemp("runs") / "old"
    with pytest.warns(DeprecationWarning, match="the old name will be removed") as warned:
        train("balanced_softmax", "digits-lt", folder, **QUICK, **OLD)
    assert "plain is now plain_weight" in " ".join(str(warning.message) for warning in warned)
    back = {new: old for old, new in KEYWORDS.items()}
    for name in ("recipe.json", "row.json"):
        content = json.loads((folder / name).read_text())
        content["keywords"] = {back.get(key, key): v for key, v in content["keywords"].items()}
        assert content["keywords"]["plain"] == 1.5
        content["format"] = 1
        if best := content.get("best_validation"):
            content["best_validation"] = {"epoch": best["epoch"], "balanced": best["value"]}
        (folder / name).write_text(json.dumps(content))
    return folder


def test_a_folder_with_old_names_is_the_same_run(old_run: Path, tmp_path: Path) -> None:
    assert NEW.items() <= read_recipe(old_run)["keywords"].items()
    assert not train("balanced_softmax", "digits-lt", old_run, **QUICK, **NEW).fresh
    unfinished = tmp_path / "unfinished"
    shutil.copytree(old_run, unfinished)
    (unfinished / "row.json").unlink()
    row = train("balanced_softmax", "digits-lt", unfinished, **QUICK, **NEW).row
    assert row is not None
    assert NEW.items() <= row["keywords"].items()
    with pytest.raises(ValueError, match=r"plain_weight: 1\.5 in the folder, 2\.0 requested"):
        train("balanced_softmax", "digits-lt", old_run, **QUICK, **{**NEW, "plain_weight": 2.0})


def test_rows_with_old_and_new_names_are_compared_as_one_setting(
    old_run: Path, tmp_path: Path
) -> None:
    words = ["train", "balanced_softmax", "--data", "digits-lt", "--out", str(tmp_path / "new")]
    words += ["--epochs", "1", "--batch", "64", "--seed", "1", "--batchformer", "on"]
    for old, value in OLD.items():
        words += [] if old == "batchformer" else [f"--{old.replace('_', '-')}", str(value)]
    app([*words, "--threads", "1", "--device", "cpu"], standalone_mode=False)
    (line,) = compare([read_row(old_run), read_row(tmp_path / "new")]).lines
    assert (line.label, line.seeds) == ("balanced_softmax", (0, 1))


def test_an_old_flag_gives_one_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "ride", "--data", "digits-lt", "--out", str(tmp_path / "run"), "--dry-run"]
    app([*words, "--heat", "0.1", "--threads", "1", "--device", "cpu"], standalone_mode=False)
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == [
        "warning: --heat is now --class-temperature; the old name will be removed in the next"
        " release"
    ]
    app(["train", "ride", "--help"], standalone_mode=False)
    assert "--heat" not in capsys.readouterr().out


def test_an_old_flag_beside_the_new_one_is_refused(longtail: Any) -> None:
    words = ("train", "ride", "--data", "digits-lt", "--heat", 0.1, "--class-temperature", 0.2)
    result = longtail(*words)
    assert result.code == 2
    assert "--heat is a deprecated name of --class-temperature: pass only one of them" in result.err
