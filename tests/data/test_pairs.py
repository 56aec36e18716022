from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pair_files import write_image, write_list

from longtail.data.open import open_data
from longtail.errors import LongtailError


def test_the_open_world_has_every_pair(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    closed, opened = open_data(path), open_data(path, pairs="open")
    assert len(opened.classes) == 4 * 3
    assert opened.classes[: len(closed.classes)] == closed.classes
    assert opened.pairs == "open"
    assert opened.hash != closed.hash
    pairs = {
        *zip(
            opened.class_attributes["attribute"].tolist(),
            opened.class_attributes["object"].tolist(),
            strict=True,
        )
    }
    assert len(pairs) == 12
    assert opened.counts.sum() == closed.counts.sum()


def test_word_vectors_belong_to_the_data(tmp_path: Path) -> None:
    path, words = write_list(tmp_path), tmp_path / "words.txt"
    words.write_text("".join(f"{w} {i} 1\n" for i, w in enumerate(["red", "blue", "wet", "old"])))
    with pytest.raises(LongtailError, match="no vector for dog, shirt, shoe"):
        open_data(path, word_vectors=words)
    more = "".join(f"{w} 0 {i}\n" for i, w in enumerate(["dog", "shirt", "shoe"]))
    words.write_text(words.read_text() + more)
    data = open_data(path, word_vectors=words)
    assert data.categories["attribute"] == ("blue", "old", "red", "wet")
    assert data.word_vectors["attribute"].tolist() == [[1, 1], [3, 1], [0, 1], [2, 1]]
    assert data.word_vectors["object"].shape == (3, 2)
    words.write_text(words.read_text().replace("shoe 0 2", "shoe 0 7"))
    assert open_data(path, word_vectors=words).hash != data.hash != open_data(path).hash


def test_other_data_has_no_pairs() -> None:
    with pytest.raises(LongtailError, match="apply only to data whose classes are pairs"):
        open_data("digits-lt", pairs="open")


def test_without_a_split_some_pairs_are_unseen(tmp_path: Path) -> None:
    lines = ["path,attribute,object"]
    for seed in range(4 * 4 * 6):
        write_image(tmp_path / f"{seed}.png", seed)
        lines.append(f"{seed}.png,a{seed % 4},o{seed // 4 % 4}")
    path = tmp_path / "list.csv"
    path.write_text("\n".join(lines))
    data = open_data(path)
    unseen = np.flatnonzero(data.counts.numpy() == 0)
    assert len(unseen) == 4
    for split in (data.val, data.test):
        assert len(set(split.target.tolist()) & set(unseen.tolist())) == 2
        assert set(split.target.tolist()) - set(unseen.tolist())
    assert len(data.train) + len(data.val) + len(data.test) == 96
    assert open_data(path).hash == data.hash != open_data(path, split_seed=1).hash
    path.write_text("\n".join(lines[:2]))
    with pytest.raises(LongtailError, match="enough pairs to leave two of them unseen"):
        open_data(path)


def test_features_name_the_parts_of_pairs(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "features": np.random.default_rng(0).normal(size=(8, 3)),
        "target": np.array([0, 1, 2, 0, 1, 2, 3, 3]),
        "split": np.array(["train"] * 3 + ["val"] * 3 + ["val", "test"]),
        "column.object": np.array(["y", "x", "y", "y", "x", "y", "x", "x"]),
        "attribute.attribute": np.array(["b", "b", "a", "a"]),
        "attribute.object": np.array(["y", "x", "y", "x"]),
    }
    np.savez(tmp_path / "features.npz", **arrays)
    data = open_data(tmp_path / "features.npz")
    assert data.categories == {"attribute": ("a", "b"), "object": ("x", "y")}
    assert data.class_attributes["object"].tolist() == [1, 0, 1, 0]
    assert data.train.columns["object"].tolist() == [1, 0, 1]
    np.savez(tmp_path / "features.npz", **{**arrays, "column.object": np.array(["z"] * 8)})
    with pytest.raises(LongtailError, match=r"column.object has z"):
        open_data(tmp_path / "features.npz")
