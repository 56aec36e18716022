"""The method of a finished run comes back with its weights and its data."""

from pathlib import Path
from typing import Any

import pytest
import torch

from longtail.runs import load, train
from longtail.runs.restore import restore_method

SMALL: dict[str, Any] = {
    "epochs": 1,
    "network": "fast_cnn",
    "batchformer": "on",
    "device": "cpu",
    "threads": 1,
}


def test_the_method_of_a_finished_run_comes_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(ValueError, match="expected"):
        restore_method(run)
    train("balanced_softmax", "digits-lt", run, **SMALL)
    method, data = restore_method(run)
    assert data.name == "digits-lt"
    assert any("batchformer" in name for name in method.state_dict()), "what only training needs"
    saved = load(run, device="cpu").network.state_dict()
    for name, tensor in method.deploy().state_dict().items():
        assert torch.equal(tensor, saved[name])
