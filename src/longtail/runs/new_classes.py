"""Change what a zero-shot model predicts without training: its bias, and further classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.data.pairs import PARTS, pair_name
from longtail.data.readers.text import read_rows
from longtail.errors import LongtailError
from longtail.nn import Adjusted, Classifier, Head, Linear, VectorHead
from longtail.nn.pairs import PairParts
from longtail.records.arrays import read_arrays
from longtail.records.layout import RunFolder
from longtail.runs.operating_point import bias_of, with_bias
from longtail.runs.predicting import Loaded

ABLE = "eszsl, for classes that vectors describe, and cge, compcos and attribute_object, for pairs"
"""The recipes whose classifiers can be given further classes."""


def set_bias(loaded: Loaded, bias: float) -> Loaded:
    """The model with another bias on the logits of its unseen classes.

    Its prediction sets were calibrated for the bias that it had: there are none.
    """
    seen, network = _seen(loaded), _classifier(loaded)
    if seen.all():
        raise LongtailError(
            f"--bias is added to unseen classes, and every class of {loaded.folder} had training"
            " images: remove it"
        )
    return replace(loaded, network=with_bias(network, seen, bias), thresholds=None)


def add_classes(loaded: Loaded, path: Path) -> Loaded:
    """The model with the classes of a file as further candidates, at the bias of unseen ones.

    A .csv has a header: `class` and a column for each number of a class's vector; or `attribute`
    and `object`, for pairs of parts that the model knows. An .npz has the arrays `classes` and
    `attribute.vector`. There are no prediction sets: new classes have no threshold.
    """
    network = _classifier(loaded)
    pairs = RunFolder(loaded.folder).model.pairs
    header = _header(path)
    if {*PARTS} & {*header}:
        if not pairs.exists():
            raise LongtailError(
                f"{path} has pairs, and the model of {loaded.row['recipe']} cannot compose any:"
                f" use a run of {ABLE}"
            )
        names, head = _add_pairs(network.head, path, pairs)
    elif isinstance(network.head, VectorHead):
        names, vectors = _described(path)
        width = network.head.spec["width"]
        if vectors.shape[1] != width:
            raise LongtailError(
                f"{path}: the classes of this run are described by {width} numbers, got"
                f" {vectors.shape[1]}"
            )
        head = network.head.add_classes(torch.from_numpy(vectors))  # type: ignore[assignment]
    else:
        known = "attribute and object" if pairs.exists() else "nothing that describes them"
        raise LongtailError(
            f"the classifier of {loaded.row['recipe']} knows its classes by {known}, and cannot be"
            f" given others by vectors without training. Those of these recipes can: {ABLE}"
        )
    if both := [name for name in names if name in loaded.classes or names.count(name) > 1]:
        raise LongtailError(
            f"{path}: expected classes that the model does not have yet, each once, got"
            f" {', '.join(both[:5])}"
        )
    extended = Classifier(network.network, head, confidence=network.confidence)
    if isinstance(network, Adjusted):
        shift = torch.full((len(names),), -bias_of(network, _seen(loaded)))
        extended = Adjusted(
            network.network,
            head,
            bias=torch.cat([network.bias.cpu(), shift]),
            temperature=float(network.temperature),
        )
    loaded.machine.place_module(extended.eval().requires_grad_(False))
    return replace(loaded, network=extended, classes=(*loaded.classes, *names), thresholds=None)


def _classifier(loaded: Loaded) -> Classifier:
    if not isinstance(loaded.network, Classifier):
        raise LongtailError(f"expected a classifier in {loaded.folder}")
    return loaded.network


def _seen(loaded: Loaded) -> NDArray[np.bool_]:
    """Whether each class had training images; added classes had none."""
    counts = loaded.row["data"]["counts_after"]
    return np.array([*counts, *[0] * (len(loaded.classes) - len(counts))]) > 0


def _header(path: Path) -> list[str]:
    if not path.is_file():
        raise LongtailError(f"--classes {path} is no file: pass a .csv or an .npz with classes")
    if path.suffix.lower() == ".npz":
        return []
    return [cell.lower() for _, row in read_rows(path)[:1] for cell in row]


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    header, rows = _header(path), [row for _, row in read_rows(path)]
    if len(rows) < 2 or any(len(row) != len(header) for row in rows):
        raise LongtailError(
            f"{path}: expected a header and a line of {len(header)} cells for each class"
        )
    return header, rows[1:]


def _described(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Names and vectors (N, width) of the classes in a file."""
    if path.suffix.lower() == ".npz":
        expected = "the arrays classes (N,) and attribute.vector (N, width) of numbers"
        arrays = read_arrays(path, repair=f"write an .npz with {expected}")
        names, vectors = arrays.get("classes"), arrays.get("attribute.vector")
        if names is None or vectors is None:
            raise LongtailError(f"{path}: expected {expected}, got {', '.join(arrays) or 'none'}")
        fits = vectors.ndim == 2 and vectors.shape[:1] == names.shape
        if not fits or vectors.dtype.kind not in "fiu":
            raise LongtailError(
                f"{path}: expected {expected}, got {names.shape} and {vectors.shape} of"
                f" {vectors.dtype}"
            )
        words = [str(name) for name in names.tolist()]
    else:
        header, rows = _rows(path)
        if "class" not in header:
            raise LongtailError(
                f"{path}: expected the columns class and one for each number of its vector, or"
                f" attribute and object; got {', '.join(header[:5])}"
            )
        at = header.index("class")
        words = [row[at] for row in rows]
        try:
            vectors = np.array([[float(cell) for cell in row[:at] + row[at + 1 :]] for row in rows])
        except ValueError as error:
            raise LongtailError(
                f"{path}: expected numbers in all columns but class ({error})"
            ) from error
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise LongtailError(f"{path}: expected finite numbers, got NaN or infinity")
    return words, vectors


def _add_pairs(head: Head, path: Path, pairs: Path) -> tuple[list[str], Head]:
    """Names of the pairs in a file, and the head with a row for each of them."""
    assert isinstance(head, Linear)
    header, rows = _rows(path)
    if missing := [part for part in PARTS if part not in header]:
        raise LongtailError(
            f"{path}: expected the columns attribute and object, missing {missing[0]}"
        )
    stored = read_arrays(pairs, repair="delete the run and train it again")
    numbers: list[list[int]] = []
    for part in PARTS:
        position = {str(word): number for number, word in enumerate(stored[f"{part}_names"])}
        words = [row[header.index(part)] for row in rows]
        if unknown := sorted({word for word in words if word not in position}):
            raise LongtailError(
                f"{path}: the model knows no {part} {', '.join(unknown[:5])}: a new pair consists"
                f" of parts that were trained ({_some([*position])})"
            )
        numbers.append([position[word] for word in words])
    new, bias = _parts(stored).rows(torch.tensor(numbers).T)
    names = [pair_name(row[header.index("attribute")], row[header.index("object")]) for row in rows]
    old_bias = torch.zeros(len(head.weight)) if head.bias is None else head.bias.cpu()
    extended = Linear(new.shape[1], len(head.weight) + len(new), scale=head.scale)
    with torch.no_grad():
        extended.weight.copy_(torch.cat([head.weight.cpu(), new]))
        extended.bias.copy_(torch.cat([old_bias, bias]))
    return names, extended


def _parts(stored: Any) -> PairParts:
    tensors = {name: torch.from_numpy(stored[name]) for name in stored if "names" not in name}
    hidden: tuple[Tensor, Tensor, Tensor] | None = None
    if "hidden_weight" in tensors:
        hidden = (tensors["attribute_hidden"], tensors["object_hidden"], tensors["hidden_weight"])
    return PairParts(
        tensors["attribute"],
        tensors["object"],
        tensors["attribute_bias"],
        tensors["object_bias"],
        bool(tensors["unit"]),
        hidden,
    )


def _some(words: Sequence[str]) -> str:
    return f"{', '.join(words[:5])}{', ...' if len(words) > 5 else ''}"
