"""The network of a run: networks of one's own train, and are imported again only with trust."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from longtail.cli.main import app
from longtail.runs import evaluate, export, load, train
from longtail.runs.restore import restore_method

SOURCE = """
from pathlib import Path

from torch import nn

Path({marker!r}).touch()


def small(size, *, width: int = 6):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, width), nn.ReLU())
"""


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A module with a network; called, it makes Python forget it. Its import leaves a file."""
    marker = tmp_path / "imported"
    (tmp_path / "networks_of_mine.py").write_text(SOURCE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(str(tmp_path))

    def forgotten() -> Path:
        sys.modules.pop("networks_of_mine", None)
        marker.unlink(missing_ok=True)
        return marker

    forgotten()
    return forgotten


def test_a_network_of_ones_own_trains_and_is_imported_again_only_with_trust(
    tmp_path: Path, forget: Callable[[], Path]
) -> None:
    run = tmp_path / "run"
    train(
        "cross_entropy",
        "digits-lt",
        run,
        network="networks_of_mine:small",
        epochs=1,
        device="cpu",
        threads=1,
    )
    network = json.loads((run / "model" / "spec.json").read_text())["network"]["network"]
    assert network["name"] == "networks_of_mine:small"
    assert (network["width"], network["size"]) == (6, 8)

    marker, said = forget(), r"networks_of_mine:small is code outside longtail.*--trust"
    for use in (
        lambda: load(run, device="cpu"),
        lambda: evaluate(run, device="cpu"),
        lambda: export(run, "torch"),
    ):
        with pytest.raises(ValueError, match=said):
            use()
    with pytest.raises(ValueError, match=r"networks_of_mine:small is code.*trust=True"):
        restore_method(run)
    cli = CliRunner()
    image = str(tmp_path / "image.png")
    Image.new("RGB", (8, 8)).save(image)
    for command in (["predict", str(run), image], ["eval", str(run)], ["serve", str(run)]):
        result = cli.invoke(app, [*command, "--device", "cpu"])
        assert result.exit_code != 0
        assert "code outside longtail" in str(result.exception)
    assert not marker.exists(), "it was imported without trust"

    loaded = load(run, device="cpu", trust=True)
    assert marker.exists()
    assert loaded.predict_proba(torch.zeros(2, 3, 8, 8)).shape == (2, 10)
    saved = json.loads((run / "row.json").read_text())["test"]["top1"]
    found = evaluate(run, device="cpu", threads=1, trust=True)["test"]
    assert found is not None
    assert found["top1"] == saved
    result = cli.invoke(app, ["predict", str(run), image, "--device", "cpu", "--trust"])
    assert result.exit_code == 0, result.output
    method, _ = restore_method(run, trust=True)
    deployed = method.deploy().state_dict()
    assert all(torch.equal(deployed[k], v) for k, v in loaded.network.state_dict().items())
