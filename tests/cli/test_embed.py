from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from longtail.cli.main import app


def test_embed_writes_features_and_names_the_next_command(tmp_path: Path) -> None:
    out = tmp_path / "digits.npz"
    words = ["embed", "digits-lt", "--network", "fast_cnn", "--weights", "random"]
    words += ["--imbalance", "10", "--out", str(out), "--device", "cpu", "--threads", "1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "rows of 128 numbers" in result.output
    assert "pretraining data of the network: none" in result.output
    assert f"longtail train balanced_softmax --data {out} --network vectors" in (
        result.output.replace("\n", "")
    )
    with np.load(out) as archive:
        assert archive["features"].shape[1] == 128
        assert {*archive["split"].tolist()} == {"train", "test"}
    again = CliRunner().invoke(app, words)
    assert "was written before" in again.output
