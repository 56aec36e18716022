"""What `longtail inspect` prints."""

import pytest

from longtail.cli import tables
from longtail.cli.inspection import domain_table, histogram, some


def test_many_classes_are_cut_in_the_middle(capsys: pytest.CaptureFixture[str]) -> None:
    classes = [
        {
            "name": f"class [{i}]",
            "source": 200 - i,
            "train": 100 - i,
            "val": 0,
            "test": 1,
            "group": "many",
            "known_to": 0.4,
        }
        for i in range(100)
    ]
    tables.print_table(histogram(classes, largest=200))
    out = capsys.readouterr().out
    assert "class [0]" in out
    assert "class [99]" in out
    assert "class [50]" not in out
    assert "... 70 more" in out


def test_names_of_classes_and_domains_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "\x1b[2Jcat"
    row = {"name": evil, "source": 3, "train": 1, "val": 1, "test": 1, "group": "few"}
    classes = [{**row, "known_to": None}]
    tables.print_table(histogram(classes, largest=3))
    domains = {"names": [evil, "b"], "test": evil, "counts": [[1], [2]]}
    tables.print_table(domain_table({"classes": classes, "domains": domains}))
    printed = capsys.readouterr().out
    assert "\x1b[2J" not in printed
    assert printed.count(r"\x1b[2Jcat") == 3


def test_some_names_stand_for_more_than_are_given() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some(["a", "b", "c"], count=1200, shown=3) == "a, b, c and 1,197 more"
