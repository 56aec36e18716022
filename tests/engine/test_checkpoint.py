"""A checkpoint is the old one or the new one, never something between."""

from pathlib import Path
from typing import BinaryIO

import pytest

from longtail.engine.checkpoint import FORMAT, load, save


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
    assert [own.name for own in tmp_path.iterdir()] == ["a.pt"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.pt", {"format": FORMAT + 1})
    with pytest.raises(
        ValueError, match=f"format {FORMAT + 1}, this version reads up to {FORMAT}: update"
    ):
        load(tmp_path / "a.pt")


def test_an_error_that_is_not_the_files_own_does_not_advise_to_delete_it(tmp_path: Path) -> None:
    (tmp_path / "last.pt").mkdir()
    with pytest.raises(OSError, match=r"last\.pt") as caught:
        load(tmp_path / "last.pt")
    assert "delete" not in str(caught.value)
