from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


@pytest.mark.parametrize(
    ("batchformer", "terms"), [("off", {"class"}), ("on", {"plain", "attended"})]
)
def test_it_trains_and_leaves_network_and_centres(
    tmp_path: Path, batchformer: str, terms: set[str]
) -> None:
    train("paco", "digits-lt", tmp_path / "run", **QUICK, queue=128, batchformer=batchformer)
    (line,) = [
        json.loads(text)
        for text in (tmp_path / "run" / "train" / "journal.jsonl").read_text().splitlines()
    ]
    assert {name.removeprefix("terms/") for name in line if name.startswith("terms/")} == terms
    assert (
        sum(p.numel() for p in load(tmp_path / "run", device="cpu").network.parameters()) == 495_696
    )


def test_a_queue_shorter_than_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="--queue 100 is shorter than the 128 images of a step: pass --queue 128"
    ):
        train("paco", "digits-lt", tmp_path / "run", **QUICK, queue=100, accumulate=2)
