"""Old spellings of public names still work, and say what they are called now."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import longtail
from longtail.deprecated import MOVED, RENAMED


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
def test_a_renamed_attribute_is_found_by_its_old_name(module: str, old: str, new: str) -> None:
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
