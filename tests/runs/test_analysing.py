from __future__ import annotations

from pathlib import Path

import pytest

import longtail
from longtail.records.layout import RunFolder
from longtail.runs.analysing import analyse_run


def test_an_analysis_of_a_finished_run_is_written_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    longtail.train("vit", "digits-lt", out=run, epochs=1, repeats=1, device="cpu", threads=1)
    analyse_run(run, "tokens")
    files = RunFolder(run).analysis
    assert {path.stem for path in files.files()} == {"attention_distance", "rank", "rollout"}
    changed = files.arrays("rank").stat().st_mtime_ns
    analyse_run(run, "tokens")
    assert files.arrays("rank").stat().st_mtime_ns == changed
    analyse_run(run, "saliency")
    assert files.arrays("gradcam").exists()
    with pytest.raises(ValueError, match="did you mean tokens"):
        analyse_run(run, "token")
