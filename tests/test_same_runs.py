"""What guards a restructuring notices a single bit, and forgives what its tables name."""

import json
from pathlib import Path

import numpy as np
import pytest
import same_runs
import torch


def write_run(
    folder: Path, *, weight: float = 1.0, minutes: float = 1.0, confused_key: str = "e"
) -> Path:
    (folder / "train").mkdir(parents=True)
    row = {"format": 1, "minutes": minutes, "test": {confused_key: [None, 3], "top1": 0.5}}
    (folder / "row.json").write_text(json.dumps(row))
    torch.save({"method": {"w": torch.tensor([weight])}}, folder / "train" / "last.pt")
    np.savez(folder / "test.npz", target=np.arange(3))
    return folder


def compared(old: Path, new: Path) -> list[str]:
    return list(same_runs.compare_folders(old, new))


def test_times_may_differ_and_bits_may_not(tmp_path: Path) -> None:
    old = write_run(tmp_path / "old")
    assert compared(old, write_run(tmp_path / "same", minutes=2.0)) == []
    nearly = write_run(tmp_path / "nearly", weight=float(np.nextafter(np.float32(1), 2)))
    [difference] = compared(old, nearly)
    assert difference.startswith("train/last.pt: method: w: tensor([1.]) became tensor([1.")
    np.savez(nearly / "test.npz", target=np.arange(3, dtype=np.int32))
    assert compared(old, nearly)[0].startswith("test.npz: target")


def test_renamed_and_new_names_are_forgiven_only_where_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_run(tmp_path / "old")
    new = write_run(tmp_path / "new", confused_key="confused_with")
    (new / "test.npz").rename(new / "predictions.npz")
    (new / "extra.json").write_text("{}")
    assert compared(old, new) == [
        "extra.json is new",
        "predictions.npz is new",
        "row.json: test: e is missing",
        "row.json: test: confused_with is new",
        "test.npz is missing",
    ]
    monkeypatch.setattr(same_runs, "RENAMED_KEYS", {"row.json": {"e": "confused_with"}})
    monkeypatch.setattr(same_runs, "RENAMED_FILES", {"test.npz": "predictions.npz"})
    monkeypatch.setattr(same_runs, "NEW_FILES", ("extra.*",))
    assert compared(old, new) == []
    row = json.loads((new / "row.json").read_text())
    (new / "row.json").write_text(json.dumps(row | {"views": "cifar", "top2": 0.7}))
    assert compared(old, new) == ["row.json: top2 is new"], "views is a new keyword"
    (old / "row.json").write_text(json.dumps(row | {"views": "places", "top2": 0.7}))
    assert compared(old, new)[0].startswith("row.json: views: 'places' became 'cifar'")


def test_only_the_terms_of_a_journal_may_differ_behind_seven_digits(tmp_path: Path) -> None:
    folders = []
    for name, term, lr in (("a", 0.5, 0.1), ("b", 0.5 + 1e-8, 0.1), ("c", 0.501, 0.1 + 1e-8)):
        line = {"lr": lr, "terms/class": term}
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.jsonl").write_text(json.dumps(line))
        folders.append(tmp_path / name)
    assert compared(folders[0], folders[1]) == []
    different = compared(folders[0], folders[2])
    assert [text.split(": ")[2] for text in different] == ["lr", "terms/class"]


def test_with_a_tolerance_only_numbers_may_differ() -> None:
    before = {"w": torch.tensor([1.0, 2.0]), "p": "0.5000", "name": "cat"}
    near = {"w": torch.tensor([1.0, 2.0001]), "p": "0.5001", "name": "cat"}
    assert len(list(same_runs.differences(before, near))) == 2
    assert not list(same_runs.differences(before, near, 1e-3))
    far = {"w": torch.tensor([1.0, 2.1]), "p": "0.6", "name": "dog"}
    assert len(list(same_runs.differences(before, far, 1e-3))) == 3


def test_exact_values_are_distinguished() -> None:
    for old, new in ((1, 1.0), (True, 1), (0.0, -0.0), ("a", "b"), ([1], [1, 2]), (None, 0)):
        assert list(same_runs.differences(old, new))
    assert not list(same_runs.differences(float("nan"), float("nan")))


def test_one_difference_of_each_file_is_shown() -> None:
    differences = ["run: row.json: a", "run: row.json: b", "run: x.npz: c", "rival: row.json: d"]
    assert (
        same_runs.shortened(differences)
        == "run: row.json: a; run: x.npz: c; rival: row.json: d; 1 more"
    )
