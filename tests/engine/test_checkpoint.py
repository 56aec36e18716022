"""A checkpoint is the old one or the new one, never something between."""

import pickle
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from longtail.engine.checkpoint import FORMAT, check_kept, load, save, tensors_of
from longtail.errors import LongtailError


def test_a_failed_write_leaves_the_old_file_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pt"
    save(path, {"step": 1})

    def full(state: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise RuntimeError("PytorchStreamWriter failed: No space left on device")

    monkeypatch.setattr("torch.save", full)
    with pytest.raises(OSError, match=r"could not write .*a\.pt.*No space left on device.*intact"):
        save(path, {"step": 2})
    assert load(path)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.pt", {"format": FORMAT + 1})
    with pytest.raises(
        ValueError, match=f"format {FORMAT + 1}, this version reads up to {FORMAT}: update"
    ):
        load(tmp_path / "a.pt")


def test_an_error_that_the_file_did_not_cause_does_not_advise_to_delete_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"last\.pt") as caught:
        load(tmp_path / "last.pt")
    assert "delete" not in str(caught.value)


def test_a_folder_in_the_place_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "last.pt").mkdir()
    with pytest.raises(LongtailError, match=rf"last\.pt is a folder: delete {tmp_path} to"):
        load(tmp_path / "last.pt")


@pytest.mark.parametrize("content", [b"", b"PK", b"junk" * 100, pickle.dumps({"a": print})])
def test_a_broken_checkpoint_is_refused_with_what_to_delete(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(content)
    with pytest.raises(
        LongtailError, match=rf"last\.pt cannot be read .*: delete {tmp_path} to"
    ) as caught:
        load(tmp_path / "last.pt")
    assert "`False`" not in str(caught.value), "no advice to run its code"


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save([1, 2], path)
    with pytest.raises(LongtailError, match=r"expected a dictionary .*last\.pt, got a list"):
        load(path)
    for state in ({}, {"weights": 3}, {"weights": {"a": 3}}, {"weights": {1: torch.ones(1)}}):
        with pytest.raises(LongtailError, match=r"expected tensors by name as weights .*last\.pt"):
            tensors_of(state, "weights", path)
    module = torch.nn.Linear(2, 1)
    for weights in ({"other": torch.ones(1)}, {"bias": torch.ones(7)}):
        with pytest.raises(LongtailError, match=r"last\.pt does not fit this network"):
            check_kept(module, weights, path)
    check_kept(module, {"bias": torch.ones(1)}, path)
