"""Names that nobody knows: the message instead; and functions by their name."""

import sys
from pathlib import Path

import pytest

from longtail.errors import LongtailError
from longtail.naming import expand_user, import_function, meant, unknown


def test_an_unknown_name_gets_the_known_and_the_closest() -> None:
    message = str(
        unknown("dataset", "cifar100lt", ["digits-lt", "cifar100-lt"], more="; or a folder")
    )
    assert (
        message
        == "unknown dataset 'cifar100lt': did you mean cifar100-lt? Known: cifar100-lt, digits-lt;"
        " or a folder"
    )


def test_nothing_is_guessed_where_nothing_is_close() -> None:
    assert meant("zzz", ["digits-lt"]) == ""
    assert str(unknown("head", "zzz", [])) == "unknown head 'zzz'. Known: none"


def test_no_more_guesses_than_requested() -> None:
    assert meant("livt", ["livt1", "livt2", "livt3"], most=2).count("livt") == 2


def test_a_function_is_imported_also_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here_alone.py").write_text("def one():\n    return 1\n\ntwo = 2\n")
    (tmp_path / "needs_more.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    assert import_function("here_alone:one")() == 1
    assert import_function("here_alone:one")() == 1
    note = f"note: modules in {tmp_path} can be imported, for here_alone:one\n"
    assert capsys.readouterr().err == note, "shown once"
    for target, message in {
        "here_alone:two": "expected a function, got 'here_alone:two': a int",
        "here_alone:three": "has no attribute 'three'",
        "nowhere.at.all:one": "No module named 'nowhere'",
    }.items():
        with pytest.raises(LongtailError, match=message):
            import_function(target)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        import_function("needs_more:one")


def test_a_user_without_a_home_is_named() -> None:
    assert expand_user("~") == Path.home()
    with pytest.raises(LongtailError, match="home folder of '~nosuchuser': write the path without"):
        expand_user("~nosuchuser/images")
