"""Features with names of images become a dataset that opens by domain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import convert_features
import numpy as np
import pytest

from longtail.data.open import open_data
from longtail.errors import LongtailError


def write(path: Path, names: list[str], **more: Any) -> Path:
    features = np.arange(2 * len(names), dtype=np.uint8).reshape(-1, 2)
    scale = np.array([0.5, 2.0], np.float32)
    np.savez(path, **{"features": features, "scale": scale, "names": np.array(names), **more})
    return path


def test_domains_and_classes_are_read_from_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{d}/images/{c}/{n}.jpg" for d in ("a", "b") for c in ("x", "y") for n in range(5)]
    source = write(tmp_path / "f.npz", names)
    words = ["convert", str(source), str(tmp_path / "out.npz"), "--pretraining", "ImageNet-1k"]
    monkeypatch.setattr(sys, "argv", words)
    convert_features.main()
    data = open_data(tmp_path / "out.npz", test_domain="b", protocol="adapt")
    assert (data.classes, data.pretraining) == (("x", "y"), "ImageNet-1k")
    assert data.test.ids == tuple(names[10:])
    vectors = data.test.inputs.vectors()
    assert vectors is not None
    assert vectors[0].tolist() == [10.0, 42.0]
    plain = convert_features.converted(write(tmp_path / "g.npz", ["x/1", "y/2"]), pretraining="")
    assert "column.domain" not in plain


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", features=np.zeros((2, 2)))
    with pytest.raises(LongtailError, match="missing"):
        convert_features.converted(tmp_path / "f.npz", pretraining="")
    with pytest.raises(LongtailError, match="CLASS/FILE"):
        convert_features.converted(write(tmp_path / "g.npz", ["a/x/1", "y/2"]), pretraining="")
