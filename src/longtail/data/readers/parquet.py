"""Read images in parquet files as the Hugging Face Hub stores them.

The column `img` or `image` is a struct<bytes, path>; labels are in `label` or `fine_label`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.data.columns import RESERVED, read_columns
from longtail.data.images.stores import EncodedImages
from longtail.data.source import (
    Rows,
    Source,
    named_targets,
    numbered_targets,
    several,
    split_named,
)
from longtail.data.splits import natural_groups
from longtail.errors import LongtailError

SCALARS = {"int8", "int16", "int32", "int64", "float", "double", "string", "large_string"}
LARGEST = 4 << 30  # bytes of shards, whose encoded images are kept in memory


@dataclass(frozen=True)
class Shards:
    """The parquet files of one split, and the names of their image and label columns."""

    files: tuple[Path, ...]
    image: str
    label: str
    names: tuple[str, ...] | None  # of the classes, if the schema has them

    def labels(self) -> list[Any]:
        """The label of every row."""
        return [
            label
            for table in self._tables(self.label)
            for label in table.column(self.label).to_pylist()
        ]

    def content(self) -> tuple[list[bytes], list[str | None]]:
        """The encoded image of every row, and its path if the file has one."""
        columns = [table.flatten() for table in self._tables(self.image)]
        blobs = [
            blob for table in columns for blob in table.column(f"{self.image}.bytes").to_pylist()
        ]
        empty = [row for row, blob in enumerate(blobs) if not blob]
        if empty:
            raise LongtailError(
                f"{self.files[0].parent}: column {self.image!r} has no image bytes in row"
                f" {several(empty)}: remove these rows."
            )
        return blobs, [
            path for table in columns for path in table.column(f"{self.image}.path").to_pylist()
        ]

    def columns(self) -> dict[str, list[Any]]:
        """All further columns of numbers or text."""
        schema = _pyarrow().read_schema(self.files[0])
        names = [
            name
            for name in schema.names
            if name not in (self.image, self.label, *RESERVED)
            and str(schema.field(name).type) in SCALARS
        ]
        return {
            name: [
                value for table in self._tables(name) for value in table.column(name).to_pylist()
            ]
            for name in names
        }

    def _tables(self, column: str) -> Iterable[Any]:
        return (_pyarrow().read_table(file, columns=[column]) for file in self.files)


def parquet_files(path: Path) -> dict[str, list[Path]]:
    """The parquet files in a folder or its sub-folder `data`, by the split their names start with.

    If no name starts with a split, all are training.
    """
    if path.is_file():
        return {"train": [path]}
    for folder in (path, path / "data"):
        by_split: dict[str | None, list[Path]] = {}
        for file in sorted(folder.glob("*.parquet")):
            by_split.setdefault(split_named(re.split(r"[^A-Za-z]", file.name)[0]), []).append(file)
        unnamed = by_split.pop(None, [])
        if unnamed and by_split:
            named = several(file.name for part in by_split.values() for file in part)
            raise LongtailError(
                f"{folder}: either all names of parquet files must start with a split (train, val,"
                f" test) or none, got {several(file.name for file in unnamed)} beside {named}."
                " Rename them."
            )
        if unnamed or by_split:
            return {split: part for split, part in by_split.items() if split is not None} or {
                "train": unnamed
            }
    return {}


def open_shards(files: Sequence[Path]) -> Shards:
    """Read the schema of a split's files: the image and label columns and the class names."""
    schema = _pyarrow().read_schema(files[0])
    image = next((name for name in ("img", "image") if name in schema.names), None)
    label = next((name for name in ("label", "fine_label") if name in schema.names), None)
    if image is None or label is None:
        raise LongtailError(
            f"{files[0]}: expected a column img or image and a column label or fine_label, got"
            f" {several(schema.names, shown=20)}."
        )
    stored = (schema.metadata or {}).get(b"huggingface")
    features = json.loads(stored)["info"]["features"] if stored else {}
    names = features.get(label, {}).get("names")
    return Shards(tuple(files), image, label, tuple(names) if names else None)


def parquet(path: Path) -> Source:
    """Images from a parquet file, or a folder of shards such as `train-00000-of-00001.parquet`."""
    files = parquet_files(path)
    if "train" not in files:
        raise LongtailError(
            f"{path}: expected parquet files of a training split (train-*.parquet), got only"
            f" {several(files)}."
        )
    bytes_ = sum(file.stat().st_size for part in files.values() for file in part)
    if bytes_ > LARGEST:
        raise LongtailError(
            f"{path}: expected at most {LARGEST >> 30} GB of parquet files, which are kept in"
            f" memory, got {bytes_ / 2**30:.1f} GB. Unpack the images into a folder of class"
            " folders, which is streamed."
        )
    shards = {split: open_shards(part) for split, part in files.items()}
    labels = {split: part.labels() for split, part in shards.items()}
    for split, values in labels.items():
        if missing := [row for row, label in enumerate(values) if label is None]:
            raise LongtailError(
                f"{path}: expected a label for every image, got none in row {several(missing)} of"
                f" {split}. Label or remove them."
            )
    if all(isinstance(label, int) for part in labels.values() for label in part):
        classes, targets = numbered_targets(labels, shards["train"].names, where=str(path))
    else:
        classes, targets = named_targets(labels)
    columns, categories = read_columns({split: part.columns() for split, part in shards.items()})
    splits = {}
    for split, part in shards.items():
        blobs, paths = part.content()
        ids = tuple(f"{split}/{name or row}" for row, name in enumerate(paths))
        splits[split] = Rows(
            EncodedImages(tuple(blobs)), targets[split], ids, columns=columns[split]
        )
    return Source(path.resolve().stem, classes, splits, natural_groups, categories=categories)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise LongtailError(
            "reading parquet files needs pyarrow: run pip install 'longtail[data]'"
        ) from error
    return pyarrow.parquet
