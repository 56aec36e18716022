from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail.cli.embed import _training
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
    repeated = CliRunner().invoke(app, words)
    assert "was written before" in repeated.output


@pytest.mark.parametrize(
    ("arrays", "command"),
    [
        (("attribute.vector",), "eszsl --data F"),
        (("attribute.attribute", "attribute.object"), "compcos --data F --network vectors"),
        (
            ("column.domain",),
            "erm --data F --network vectors --hidden 256 --test-domain DOMAIN",
        ),
        (("column.camera",), "balanced_softmax --data F --network vectors"),
    ],
)
def test_the_next_recipe_is_for_the_task_of_the_data(
    tmp_path: Path, arrays: tuple[str, ...], command: str
) -> None:
    path = tmp_path / "features.npz"
    np.savez(path, **dict.fromkeys(arrays, np.zeros(1)))  # type: ignore[arg-type]
    assert _training(path) == command.replace("F", str(path), 1)
