"""Finished runs, compared and reported from Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import longtail
from longtail.report.columns import ColumnTable
from longtail.report.comparison import Comparison
from longtail.report.public import write_report

Finished = Callable[..., Path]


def test_folders_are_compared(finished: Finished, tmp_path: Path) -> None:
    one = finished("runs/a", right=(0.9, 0.9, 0.9))
    finished("runs/b", recipe="balanced_softmax")
    table = longtail.compare(tmp_path / "runs")
    assert isinstance(table, Comparison)
    assert [line.label for line in table.lines] == ["cross_entropy", "balanced_softmax"]
    assert len(longtail.compare(str(one)).lines) == 1
    assert isinstance(longtail.compare([one], by="protocol"), ColumnTable)
    with pytest.raises(ValueError, match="got nothing"):
        longtail.compare(tmp_path / "nowhere")


def test_a_report_is_written_and_its_path_given(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = finished("runs/a")
    assert longtail.report(one) == one / "report.html"
    finished("runs/b", recipe="balanced_softmax")
    assert longtail.report("runs") == Path("report.html")
    assert "2 runs on" in Path("report.html").read_text(encoding="utf-8")
    assert longtail.report([one], "deep/one.html") == Path("deep/one.html")
    (tmp_path / "runs" / "b" / "row.json").unlink()
    path, folders, warnings = write_report([Path("runs")], None)
    assert (path, folders) == (Path("runs/a/report.html"), [Path("runs/a")])
    assert warnings[0] == "runs/b is unfinished and not in the report"


def test_a_report_has_a_column_for_each_value_of_a_data_flag(
    finished: Finished, tmp_path: Path
) -> None:
    for imbalance in (10.0, 100.0):
        data = {"imbalance": imbalance, "hash": f"{imbalance:g}" * 16}
        finished(f"runs/a-{imbalance:g}", data=data)
        finished(f"runs/b-{imbalance:g}", data=data, recipe="balanced_softmax")
    page = longtail.report(tmp_path / "runs", tmp_path / "r.html", by="imbalance").read_text(
        "utf-8"
    )
    table = longtail.compare(tmp_path / "runs", by="imbalance")
    for text in (*table.columns(), *(cell for cells in table.cells() for cell in cells)):
        assert text in page
    assert page.count("% of test images") >= 3  # a figure for each value and for the mean
    assert "not ranked" not in page
    with pytest.raises(ValueError, match="did you mean imbalance"):
        longtail.report(tmp_path / "runs", tmp_path / "r.html", by=["imbalanse"])
    with pytest.raises(ValueError, match="no effect on the report of one run"):
        longtail.report(tmp_path / "runs" / "a-10", by=["imbalance"])


def test_the_report_is_a_function_before_and_after_its_module_was_imported() -> None:
    code = (
        "import sys, longtail; assert callable(longtail.report)\n"
        "import longtail.report.comparison; assert callable(longtail.report)\n"
        "assert not {'torch', 'timm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_comparing_imports_no_templates_and_images(finished: Finished) -> None:
    runs = [str(finished("runs/a")), str(finished("runs/b", recipe="balanced_softmax"))]
    code = (
        "import sys, longtail; longtail.compare(sys.argv[1:])\n"
        "assert not {'jinja2', 'PIL', 'tomllib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, *runs], check=True)
