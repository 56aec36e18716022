"""What other programs read: Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.records.row import Row, read_row
from longtail.report.comparison import compare
from longtail.report.formats import FORMATS, cell, to_csv, to_latex, to_markdown, write

Finished = Callable[..., Path]
GOOD = (0.9, 0.8, 0.7)


def rows(*folders: Path) -> list[Row]:
    return [read_row(folder) for folder in folders]


def three_seeds(finished: Finished) -> tuple[list[Path], list[Path]]:
    plain = [finished(f"ce{seed}", seed=seed, draw=seed) for seed in range(3)]
    even = [
        finished(f"bs{seed}", recipe="balanced_softmax", seed=seed, draw=10 + seed, right=GOOD)
        for seed in range(3)
    ]
    return plain, even


def test_markdown_is_a_table_that_names_its_rules(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    text = to_markdown(compare(rows(*plain, *even)))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith("| balanced_softmax | ")
    assert "**balanced**" in table[0]
    for words in (
        "toy-lt (imbalance 10) 01234567",
        "ranks: 1/1/1",
        "last epoch",
        "holdout",
        "60 images",
    ):
        assert words in text


def test_csv_has_full_precision(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    table = compare(rows(*plain, *even))
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [line["method"] for line in lines] == ["balanced_softmax", "cross_entropy"]
    score, difference = table.lines[0].scores["balanced"], table.lines[0].difference
    assert score is not None
    assert difference is not None
    assert float(lines[0]["balanced"]) == score.mean
    assert float(lines[0]["balanced_deviation"]) == score.deviation
    assert float(lines[0]["difference_low"]) == difference.low
    assert lines[1]["difference"] == ""
    assert (lines[0]["seeds"], lines[0]["n"]) == ("0 1 2", "3")


def test_the_cells_fit_the_columns_and_repeat_to_the_letter(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    table = compare(rows(*plain, *even), across=["tta"])
    assert {len(cells) for cells in table.cells()} == {len(table.columns())}
    repeated = compare(rows(*plain, *even), across=["tta"])
    assert [write(table) for write in FORMATS.values()] == [
        write(repeated) for write in FORMATS.values()
    ]


def test_latex_is_a_booktabs_tabular_with_the_best_in_bold(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    text = to_latex(compare(rows(*plain, *even)))
    assert all(
        rf"\{rule}" in text
        for rule in (
            "toprule",
            "midrule",
            "bottomrule",
            "begin{tabular}{lrrrrrrrrrrr}",
            "end{tabular}",
        )
    )
    best, second = [
        line
        for line in text.splitlines()
        if line.endswith(r" \\") and not line.startswith("method")
    ]
    assert best.startswith(r"balanced\_softmax & \textbf{")
    assert r"$\pm$" in best
    assert "%" not in best  # would begin a comment
    columns = best.count(" & ")
    assert columns == second.count(" & ") == 11
    means = {
        name: (float(re.findall(r"[\d.]+", cells[0])[0]), float(re.findall(r"[\d.]+", cells[1])[0]))
        for name, cells in _by_column(text)
    }
    for name, (first, other) in means.items():
        bold = [r"\textbf" in dict(_by_column(text))[name][number] for number in (0, 1)]
        higher = first >= other if name != "ece" else first <= other
        assert bold == ([True, first == other] if higher else [first == other, True]), name
    assert (
        next(line for line in text.splitlines() if line.startswith("% "))
        == r"% \usepackage{booktabs}"
    )


def _by_column(text: str) -> list[tuple[str, list[str]]]:
    lines = [
        line.removesuffix(r" \\").split(" & ")
        for line in text.splitlines()
        if line.endswith(r" \\")
    ]
    return [
        (name, [line[number] for line in lines[1:]])
        for number, name in enumerate(lines[0])
        if 1 <= number <= 6
    ]


def test_latex_prints_names_as_they_are(finished: Finished) -> None:
    names = [{"teacher": r"a_b & 50% of #1 {x} ^~ \o/ $"}, {"teacher": "b"}]
    pair = [
        finished(f"r{number}", keywords=keywords, draw=number)
        for number, keywords in enumerate(names)
    ]
    text = to_latex(compare(rows(*pair)))
    assert (
        r"teacher=a\_b \& 50\% of \#1 \{x\} \textasciicircum{}\textasciitilde{}"
        r" \textbackslash{}o/ \$" in text
    )
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) == 1
    assert re.search(r"\$-\$\d", text) or "+" in text  # a difference has its sign


def test_one_run_has_no_best(finished: Finished) -> None:
    assert r"\textbf" not in to_latex(compare(rows(finished("a"))))


def test_the_suffix_selects_the_format(finished: Finished, tmp_path: Path) -> None:
    table = compare(rows(finished("a")))
    for name, form in (
        ("t.md", "markdown"),
        ("t.csv", "csv"),
        ("deep/t.tex", "latex"),
        ("t.txt", "markdown"),
    ):
        write(table, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == FORMATS[form](table)
    with pytest.raises(ValueError, match=r"t.xlsx: use one of .md, .csv, .tex, .txt"):
        write(table, tmp_path / "t.xlsx")
    assert not (tmp_path / "t.xlsx").exists()
    write(table, tmp_path / "t.txt", format="csv")
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == to_csv(table)


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+cmd", "@sum", "-2+3", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["plain", "-0.5", "+1", "-1e-3", "a=b", 3, -0.25])
def test_other_cells_stay_as_they_are(value: object) -> None:
    assert cell(value) == str(value)
