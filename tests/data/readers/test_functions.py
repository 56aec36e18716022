from __future__ import annotations

from pathlib import Path

import pytest

from longtail.data.open import open_data
from longtail.data.readers.functions import from_function
from longtail.errors import LongtailError

OURS = """
from dataclasses import replace
from longtail.data.readers.digits import digits

def ours(root=None):
    return replace(digits(), name="ours" if root is None else str(root))

def wrong():
    return 7
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_reader.py").write_text(OURS)
    (tmp_path / "our_needy_reader.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_function_is_data_with_the_hash_of_its_content() -> None:
    data = open_data("our_reader:ours")
    assert data.name == "ours"
    assert data.hash == open_data("digits-lt").hash
    assert from_function("our_reader:ours", root=Path("there")).name == "there"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("our_reader:nothing", "no attribute 'nothing'"),
        ("no_such_module:ours", "No module named 'no_such_module'"),
        ("our_reader:wrong", "must return a longtail.data.source.Source, got a int"),
    ],
)
def test_what_gives_no_data_is_refused(name: str, words: str) -> None:
    with pytest.raises(LongtailError, match=words):
        open_data(name)


def test_an_error_inside_of_the_module_is_not_hidden() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package") as caught:
        open_data("our_needy_reader:ours")
    assert not isinstance(caught.value, LongtailError)
