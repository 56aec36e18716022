"""Numpy archives: nothing is executed, and no size is believed."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.errors import LongtailError
from longtail.records import arrays
from longtail.records.arrays import read_arrays


def claiming(path: Path, shape: tuple[int, ...]) -> None:
    """An archive whose array claims another shape than it has numbers for."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", header.getvalue() + bytes(400))


def test_all_arrays_are_read(tmp_path: Path) -> None:
    given: dict[str, Any] = {"a": np.arange(6).reshape(2, 3), "b": np.array(["x", "yz"])}
    np.savez_compressed(tmp_path / "x.npz", **given)
    result = read_arrays(tmp_path / "x.npz", repair="delete it")
    assert {name: values.tolist() for name, values in result.items()} == {
        "a": [[0, 1, 2], [3, 4, 5]],
        "b": ["x", "yz"],
    }


def test_a_size_that_is_claimed_is_not_allocated(tmp_path: Path) -> None:
    claiming(tmp_path / "x.npz", (1_000_000, 93_132))
    with pytest.raises(
        LongtailError,
        match=r"x\.npz \(logits\.npy claims 372\.5 GB .* 0\.0 GB\): delete it",
    ):
        read_arrays(tmp_path / "x.npz", repair="delete it")


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10_000_000))
    assert (tmp_path / "x.npz").stat().st_size < 100_000
    monkeypatch.setattr(arrays, "LIMIT", 1_000_000)
    with pytest.raises(LongtailError, match="more than the limit"):
        read_arrays(tmp_path / "x.npz", repair="delete it")


@pytest.mark.parametrize("kind", ["empty", "cut", "objects", "no arrays", "folder", "none", "pipe"])
def test_other_files_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(1000))
    content = path.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "objects":
        np.savez(path, a=np.array([object()], dtype=object))
    elif kind == "no arrays":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", b"text")
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        if kind == "pipe":
            os.mkfifo(path)
    with pytest.raises(LongtailError, match=r"x\.npz .*: delete it$"):
        read_arrays(path, repair="delete it")
