"""The stages of a recipe without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtail.engine.run import Run
from longtail.runs import train


class Enough(Exception):
    """What a test looks for has been seen."""


def stages(
    monkeypatch: pytest.MonkeyPatch, folder: Path, recipe: str, *, first: str = "", **keywords: Any
) -> dict[str, Any]:
    """The stages of a recipe on digits and their optimizers by name, up to the one after `first`;
    none of them is run.
    """
    captured: dict[str, Any] = {}

    def fit(self: Run, stage: Any) -> Any:
        captured.update(
            {stage.name: stage, f"{stage.name}'s optimizer": stage.optimizer(stage.method)}
        )
        if stage.name != first:
            raise Enough
        return stage.method

    monkeypatch.setattr(Run, "fit", fit)
    with pytest.raises(Enough):
        train(recipe, "digits-lt", folder, **keywords)
    return captured
