import os
from pathlib import Path

import numpy as np
import pytest

from longtail.data.words import LONGEST, word_vectors
from longtail.errors import LongtailError

TEXT = "4 2\nnavy 1 0\nblue 0 1\nshirt 2 2\nof the 9 9\nFlip-Flops 5 6\n"
NAMES = {"attribute": ["Navy Blue", "blue"], "object": ["shirt", "Flip-Flops"]}


def test_a_name_of_several_words_has_their_mean(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(TEXT)
    vectors = word_vectors(path, NAMES)
    assert vectors["attribute"].tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert vectors["object"].tolist() == [[2.0, 2.0], [5.0, 6.0]]
    assert vectors["object"].dtype == np.float32


def test_an_npz_has_the_same_vectors(tmp_path: Path) -> None:
    text, npz = tmp_path / "vectors.txt", tmp_path / "vectors.npz"
    text.write_text(TEXT)
    words = np.array(["navy", "blue", "shirt", "Flip-Flops"])
    np.savez(npz, words=words, vectors=np.array([[1, 0], [0, 1], [2, 2], [5, 6]]))
    for kind, rows in word_vectors(text, NAMES).items():
        assert np.array_equal(rows, word_vectors(npz, NAMES)[kind])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("navy 1 0\nshirt 2 2\n", "no vector for Blue .of Navy Blue., blue, Flip .of Flip-Flops."),
        ("navy 1 0\nblue 0 x\n", "line 2: expected a word and 2 numbers"),
        ("navy 1 0\nblue\n", "no vector for"),
        ("dark 1 2\nblue 1\nt-shirt 1 1\n", "line 2: expected a word and 2 numbers.*got 1 after"),
        ("dark 1 2\nblue 1 2 3\nt-shirt 1 1\n", "line 2: .* got 3 after blue"),
    ],
)
def test_missing_words_and_broken_lines_are_named(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(LongtailError, match=message):
        word_vectors(path, NAMES)


def test_files_that_are_no_vectors_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(LongtailError, match="is a pipe, not a file"):
        word_vectors(tmp_path / "pipe.txt", NAMES)
    (tmp_path / "line.txt").write_bytes(bytes(LONGEST + 1))
    with pytest.raises(LongtailError, match="line 1: expected a word and its numbers, got more"):
        word_vectors(tmp_path / "line.txt", NAMES)
    np.savez(tmp_path / "text.npz", words=np.array(["blue"]), vectors=np.array([["x"]]))
    with pytest.raises(LongtailError, match=r"vectors \(N, D\) of numbers, got .*<U1"):
        word_vectors(tmp_path / "text.npz", NAMES)
    with pytest.raises(LongtailError, match="cannot be read"):
        word_vectors(tmp_path / "missing.txt", NAMES)
    np.savez(tmp_path / "other.npz", words=np.array(["blue"]))
    with pytest.raises(LongtailError, match=r"expected the arrays words \(N,\) and vectors"):
        word_vectors(tmp_path / "other.npz", NAMES)
