"""The method of a finished run comes back with its weights and its data."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from finished import changed, finished

from longtail.errors import LongtailError
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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"recipe": "strangers_recipe:train"}, "the recipe strangers_recipe:train"),
        ({"keywords": {"network": "strangers_recipe:train"}}, "the network strangers_recipe"),
    ],
)
def test_code_that_a_folder_names_is_not_run(
    change: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(tmp_path / "run")
    changed(run / "recipe.json", **change)
    (tmp_path / "strangers_recipe.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    with pytest.raises(LongtailError, match=f"{named}.* is code outside longtail"):
        restore_method(run)
    assert sys.path == path
    if "recipe" in change:  # its source is read
        with pytest.raises(LongtailError, match="unknown function"):
            restore_method(run, trust=True)
