"""Word vectors of names, from a text file or an .npz."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.data.source import listing
from longtail.errors import LongtailError
from longtail.records.arrays import read_arrays
from longtail.records.files import check_regular

LIMIT = 50_000_000_000  # bytes of a text file, which is read line by line
LONGEST = 1_000_000  # characters of a line


def word_vectors(path: Path, names: Mapping[str, Sequence[str]]) -> dict[str, NDArray[np.float32]]:
    """The vectors (names, D) of the names in each list; that of several words is their mean.

    A text file has lines `word v1 v2 ...`, as GloVe and fastText publish them; a first line with
    two integers is skipped. An .npz has the arrays `words` (N,) and `vectors` (N, D). A name or
    word is looked up as it is written, or else in lower case. A name without a vector is split at
    whatever is not a letter or a digit.
    """
    wanted = {
        spelling
        for several_names in names.values()
        for name in several_names
        for word in (name, *words_of(name))
        for spelling in (word, word.lower())
    }
    known = _npz(path, wanted) if path.suffix.lower() == ".npz" else _text(path, wanted)
    missing: list[str] = []

    def find(word: str) -> NDArray[np.float32] | None:
        return known.get(word, known.get(word.lower()))

    def vector(name: str) -> NDArray[np.float32] | None:
        vectors = [find(name)]
        if vectors[0] is None:
            words = words_of(name)
            vectors = [find(word) for word in words]
            missing.extend(
                f"{word} (of {name})" if word != name else name
                for word, entry in zip(words, vectors, strict=True)
                if entry is None
            )
            if not words:
                missing.append(name)
        known_parts = [part for part in vectors if part is not None]
        return np.mean(known_parts, axis=0) if known_parts else None

    vectors = {kind: [vector(name) for name in listed] for kind, listed in names.items()}
    if missing:
        raise LongtailError(
            f"{path} has no vector for {listing(dict.fromkeys(missing), shown=20)}: add these words"
            " to the file, or rename them in the data."
        )
    return {kind: np.array(rows, dtype=np.float32) for kind, rows in vectors.items()}


def words_of(name: str) -> list[str]:
    """The words of a name.

    >>> words_of("Navy Blue"), words_of("Faux.Leather"), words_of("t-shirt_2")
    (['Navy', 'Blue'], ['Faux', 'Leather'], ['t', 'shirt', '2'])
    """
    return re.findall(r"[^\W_]+", name)


def _text(path: Path, wanted: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    wanted, known, dim = set(wanted), dict[str, NDArray[np.float32]](), 0
    try:
        check_regular(path, limit=LIMIT)
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST), ""), start=1):
                if len(line) == LONGEST:
                    raise LongtailError(
                        f"{path}, line {number}: expected a word and its numbers, got more than"
                        f" {LONGEST:,} characters: pass a file of word vectors"
                    )
                cells = line.rstrip().split(" ")
                if number == 1 and len(cells) == 2 and all(cell.isdecimal() for cell in cells):
                    continue  # the numbers of words and of dimensions
                dim = dim or len(cells) - 1
                word = " ".join(cells[:-dim])
                if word not in wanted:
                    if cells[0] not in wanted or not (count := _count_numbers(cells)):
                        continue
                    raise _broken_line(path, number, dim, f"{count} after {cells[0]}")
                try:
                    row = np.array(cells[-dim:], dtype=np.float32)
                except ValueError:
                    raise _broken_line(path, number, dim, "something else") from None
                if len(cells) <= dim or not np.isfinite(row).all():
                    raise _broken_line(path, number, dim, "none, NaN or infinity")
                known.setdefault(word, row)
    except OSError as error:
        raise LongtailError(f"the word vectors {path} cannot be read: {error}") from error
    return known


def _count_numbers(cells: Sequence[str]) -> int:
    """How many numbers follow the first cell; 0 if anything else does."""
    try:
        return len([float(cell) for cell in cells[1:]])
    except ValueError:
        return 0


def _broken_line(path: Path, number: int, dim: int, got: str) -> LongtailError:
    return LongtailError(
        f"{path}, line {number}: expected a word and {dim} numbers, separated by spaces, got {got}:"
        " mend or remove the line"
    )


def _npz(path: Path, wanted: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    expected = "the arrays words (N,) and vectors (N, D) of numbers"
    arrays = read_arrays(path, repair=f"write an .npz with {expected}")
    none = np.zeros(0)
    words, vectors = arrays.get("words", none), arrays.get("vectors", none)
    fits = vectors.ndim == 2 and words.shape == vectors.shape[:1]
    if not fits or vectors.dtype.kind not in "fiu":
        kinds = (f"{name} {values.dtype} {values.shape}" for name, values in arrays.items())
        raise LongtailError(f"{path}: expected {expected}, got {listing(kinds)}.")
    known = {str(word): row for word, row in zip(words.tolist(), vectors, strict=True)}
    rows = {word: known[word].astype(np.float32) for word in {*wanted} if word in known}
    if any(not np.isfinite(row).all() for row in rows.values()):
        raise LongtailError(f"{path}: expected finite vectors, got NaN or infinity.")
    return rows
