"""Run folders of format 1, as people have them, are read, resumed and compared by the code of
today.
"""

import json
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import longtail
from longtail.cli.main import run
from longtail.data.open import open_data
from longtail.engine import checkpoint
from longtail.nn import networks
from longtail.nn.fast_cnn import fast_cnn
from longtail.records.documents import FORMAT
from longtail.records.files import read_lines
from longtail.records.kinds import read_recipe
from longtail.records.row import read_row
from longtail.report.comparison import compare

FOLDERS = Path(__file__).parent / "format1"
STEPS = 27  # of the unfinished run, when it was killed: in the middle of an epoch of 6


def train(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type the command in the unfinished run's recipe.json again, with another --out."""
    words = shlex.split(json.loads((FOLDERS / "unfinished/recipe.json").read_text())["command"])
    words[words.index("--out") + 1] = str(out)
    # They were made with a narrow network, so that they are small (tests/format1/README.md).
    monkeypatch.setitem(networks.NETWORKS, "fast_cnn", partial(fast_cnn, width=3))
    machine = ("--device", "cpu", "--precision", "fp32", "--threads", "1")
    monkeypatch.setattr(sys, "argv", [*words, *machine])
    with pytest.raises(SystemExit) as exit:
        run()
    assert not exit.value.code


def test_a_finished_run_is_loaded_and_predicts_what_it_predicted() -> None:
    folder = FOLDERS / "finished"
    with np.load(folder / "predictions/test.npz") as file:
        logits, target = torch.from_numpy(file["logits"]), file["target"]
    store = open_data("digits-lt", imbalance=10).test.inputs
    predicted = longtail.load(folder, device="cpu").predict(
        [store.image(index) for index in range(len(store))]
    )
    torch.testing.assert_close(predicted.probabilities, logits.softmax(1), rtol=0, atol=1e-5)
    assert predicted.sets is not None
    row = read_row(folder)
    assert row["test"] is not None
    assert row["test"]["top1"] == pytest.approx(np.mean(logits.argmax(1).numpy() == target))
    assert row["best_validation"] == {"epoch": 7, "value": pytest.approx(0.332, abs=1e-3)}


def test_an_unfinished_run_is_resumed_as_if_it_had_not_been_killed_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed, uninterrupted = tmp_path / "resumed", tmp_path / "uninterrupted"
    shutil.copytree(FOLDERS / "unfinished", resumed)
    assert checkpoint.load(resumed / "train/last.pt")["step"] == STEPS
    before = read_lines(resumed / "train/journal.jsonl")
    train(resumed, monkeypatch)
    assert f"continuing after step {STEPS}" in capsys.readouterr().err
    train(uninterrupted, monkeypatch)

    # Other processors and other versions of torch round differently: only then may they be apart.
    again = read_lines(uninterrupted / "train/journal.jsonl")[: len(before)]
    terms = [
        [[line[name] for name in line if name.startswith("terms/")] for line in lines]
        for lines in (before, again)
    ]
    allowed = 0.0 if terms[0] == terms[1] else 1e-3
    for name in ("last.pt", "kept.pt"):
        old, new = (checkpoint.load(out / "train" / name) for out in (resumed, uninterrupted))
        key = "method" if name == "last.pt" else "weights"
        torch.testing.assert_close(old[key], new[key], rtol=0, atol=allowed)
    old, new = (load_file(out / "model/model.safetensors") for out in (resumed, uninterrupted))
    torch.testing.assert_close(old, new, rtol=0, atol=allowed)

    # What was resumed ends in the current format; its recipe keeps what the start recorded.
    for path in (resumed / "recipe.json", resumed / "row.json", resumed / "model/spec.json"):
        assert json.loads(path.read_text())["format"] == FORMAT
    record, start = read_recipe(resumed), read_recipe(FOLDERS / "unfinished")
    assert record == json.loads((resumed / "recipe.json").read_text())
    assert record["data"].keys() <= read_recipe(uninterrupted)["data"].keys()
    del record["data"]["geometry"]  # which format 1 did not record
    assert record == start

    rows = [read_row(FOLDERS / "finished"), read_row(resumed)]
    if not allowed:
        assert rows[1]["test"] == read_row(uninterrupted)["test"]
    table = compare(rows)
    assert {line.folders for line in table.lines} == {(str(row["folder"]),) for row in rows}
    assert table.agreed["selection"] == "best ema/val/balanced, adjusted on validation"
    with pytest.raises(ValueError, match="have the same recipe, keywords and seed 0"):
        compare([rows[1], read_row(uninterrupted)])
