"""Examples of mistakes: the right ones, with a map for every kind of network, and never at the cost
of a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from longtail.analysis.writing import warn_on_error
from longtail.data.open import open_data
from longtail.nn import Classifier, Linear, build
from longtail.records.predictions import SplitPredictions, read_predictions, write_predictions
from longtail.runs import evaluate, examples, train
from longtail.runs.examples import chosen, write_examples

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


def classifier(name: str, **keywords: Any) -> nn.Module:
    torch.manual_seed(0)
    network = build({"name": name, "size": 32, **keywords})
    # In training mode, as deployed networks may be
    return Classifier(network.eval(), Linear(network.dim, 10))


def test_the_worst_classes_come_first_and_their_surest_mistakes() -> None:
    target = np.repeat([0, 1, 2, 3], [4, 10, 10, 2])
    logits = np.eye(4)[target] * 2.0
    wrong = {1: [4, 5], 2: [14, 15, 16, 17, 18, 19]}  # class 3 is always right
    for rows in wrong.values():
        for number, row in enumerate(rows):
            logits[row] = np.eye(4)[0] * (3 + number)
    shown = chosen(logits, target, members=(1, 2, 3), sure=logits.max(1))
    assert shown.tolist() == [19, 18, 17, 16, 5, 4]
    assert chosen(logits, target, members=(3,), sure=logits.max(1)).tolist() == []


def test_a_run_has_small_examples_of_what_it_got_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train("balanced_softmax", "digits-lt", folder, **QUICK)
    data = open_data("digits-lt")
    with np.load(folder / "analysis" / "examples.npz") as stored:
        arrays = dict(stored)
    predictions, ids = read_predictions(folder / "predictions" / "test.npz")
    answer = dict(zip(ids.tolist(), predictions.logits["logits"].argmax(1).tolist(), strict=True))
    assert len(arrays["id"]) == len(arrays["map"]) > 0
    assert arrays["image"].dtype == np.uint8
    assert arrays["image"].shape[1:] == (8, 8, 3)
    for image, name, target, predicted in zip(
        arrays["image"], arrays["id"].tolist(), arrays["target"], arrays["answer"], strict=True
    ):
        row = data.test.ids.index(name)
        assert int(data.test.target[row]) == target != predicted
        assert answer[name] == predicted
        assert target in data.groups.members["few"]
        assert np.array_equal(image, np.asarray(data.test.inputs.image(row)))
    assert (folder / "analysis" / "examples.npz").stat().st_size <= 300_000
    assert (folder / "report.html").exists()

    for name in ("analysis/examples.npz", "report.html"):
        (folder / name).unlink()
    evaluate(folder, device="cpu", threads=1)
    assert not (folder / "report.html").exists()
    evaluate(folder, device="cpu", threads=1, rewrite=True)
    with np.load(folder / "analysis" / "examples.npz") as stored:
        assert {name: tensor.shape for name, tensor in stored.items()} == {
            name: tensor.shape for name, tensor in arrays.items()
        }
        assert np.array_equal(stored["target"], arrays["target"])
        assert np.allclose(stored["confidence"], arrays["confidence"], atol=1e-5)
    assert (folder / "report.html").exists()


def test_large_images_become_small_and_stay_in_the_budget(tmp_path: Path) -> None:
    data = open_data("digits-lt")
    network = classifier("timm:resnet10t")
    logits = np.zeros((len(data.test), 10), dtype=np.float32)
    logits[:, 0] = 1.0
    write_predictions(
        tmp_path / "predictions" / "test.npz",
        SplitPredictions({"logits": logits}, data.test.target.numpy(), np.arange(len(data.test))),
        data.test.ids,
    )
    path = write_examples(tmp_path, network, data, size=96)
    assert path is not None
    with np.load(path) as stored:
        assert stored["image"].shape[1:] == (64, 64, 3)
        assert stored["map"].shape[0] == len(stored["image"]) == 3 * examples.EACH
    assert path.stat().st_size <= 300_000
    assert [file.name for file in path.parent.iterdir()] == ["examples.npz"]
    right = np.eye(10, dtype=np.float32)[data.test.target.numpy()]
    write_predictions(
        tmp_path / "predictions" / "test.npz",
        SplitPredictions({"logits": right}, data.test.target.numpy(), np.arange(len(data.test))),
        data.test.ids,
    )
    assert write_examples(tmp_path, network, data, size=96) is None


def test_a_finished_run_survives_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: Any, **named: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("longtail.runs.results.write_examples", broken)
    monkeypatch.setattr("longtail.runs.training.write_report", broken)
    result = train("cross_entropy", "digits-lt", tmp_path / "run", **QUICK)
    assert result.row is not None
    assert (tmp_path / "run" / "row.json").exists()
    output = capsys.readouterr().err
    assert "warning: no example images were written: RuntimeError: out of memory" in output
    assert f"longtail eval {tmp_path / 'run'} --rewrite" in output
    assert "warning: no report was written" in output


def test_a_wish_to_stop_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt), warn_on_error("nothing", "again"):
        raise KeyboardInterrupt
