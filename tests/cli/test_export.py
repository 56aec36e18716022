from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from finished import finished


def test_an_export_says_that_it_was_checked(longtail: Any, tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    result = longtail("export", run, "--to", "torch", "--images", 20)
    assert result.code == 0
    assert "agrees with the run on 20 test images" in result.out
    assert "all predictions equal" in result.out
    assert "model.pt2" in result.out
    assert "next: cat" in result.out
    assert (run / "export" / "torch" / "model.pt2").exists()
    record = json.loads((run / "recipe.json").read_text())
    record["data"]["source"] = "nowhere"
    (run / "recipe.json").write_text(json.dumps(record))
    result = longtail("export", run, "--to", "torch", "--images", 5, "--out", tmp_path / "out")
    assert "random images" in result.out
    assert "pass --root" in result.err


@pytest.mark.parametrize(("to", "message"), [("timm", "that timm has"), ("coreml", "coreml")])
def test_what_cannot_be_exported_is_refused(
    longtail: Any, tmp_path: Path, to: str, message: str
) -> None:
    result = longtail("export", finished(tmp_path), "--to", to)
    assert result.code == 2
    assert message in result.err
