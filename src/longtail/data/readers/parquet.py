"""Read images in parquet files as the Hugging Face Hub stores them.

The column `img` or `image` is a struct<bytes, path>, plain bytes, or paths that are relative to the
file's folder; labels are in `label` or `fine_label`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.data.columns import RESERVED, read_columns
from longtail.data.images.stores import EncodedImages, FileImages, ImageStore
from longtail.data.source import (
    Rows,
    Source,
    listing,
    named_targets,
    numbered_targets,
    split_named,
)
from longtail.data.splits import natural_groups
from longtail.errors import LongtailError
from longtail.records.files import check_regular

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
        return [label for _, values in self._parts(self.label) for label in values]

    def content(self) -> tuple[list[bytes] | None, list[str | None]]:
        """The encoded image of every row and its path, each where the files have it.

        The column holds structs of bytes and path, plain bytes, or paths.
        """
        blobs: list[bytes] = []
        paths: list[str | None] = []
        for kind, values in self._parts(self.image):
            fields = {field.name for field in kind} if str(kind).startswith("struct") else set()
            if fields:
                values = [value or {} for value in values]
                blobs += [value.get("bytes") or b"" for value in values]
                paths += [value.get("path") for value in values]
            elif _is_text(kind):
                blobs += [b""] * len(values)
                paths += values
            else:
                blobs += [value or b"" for value in values]
                paths += [None] * len(values)
        if not any(blobs) and all(paths):
            return None, paths
        empty = [row for row, blob in enumerate(blobs) if not blob]
        if empty:
            raise LongtailError(
                f"{self.files[0].parent}: column {self.image!r} has no image bytes in row"
                f" {listing(empty)}: remove these rows."
            )
        return blobs, paths

    def columns(self) -> dict[str, list[Any]]:
        """All further columns of numbers or text."""
        schema = _schema(self.files[0])
        names = [
            name
            for name in schema.names
            if name not in (self.image, self.label, *RESERVED)
            and str(schema.field(name).type) in SCALARS
        ]
        return {name: [value for _, part in self._parts(name) for value in part] for name in names}

    def _parts(self, column: str) -> Iterator[tuple[Any, list[Any]]]:
        """The type and the values of a column in each file."""
        for file in self.files:
            with _naming(file):
                table = _pyarrow().read_table(file, columns=[column])
                part = table.schema.field(column).type, table.column(column).to_pylist()
            yield part


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
            named = listing(file.name for part in by_split.values() for file in part)
            raise LongtailError(
                f"{folder}: either all names of parquet files must start with a split (train, val,"
                f" test) or none, got {listing(file.name for file in unnamed)} beside {named}."
                " Rename them."
            )
        if unnamed or by_split:
            return {split: part for split, part in by_split.items() if split is not None} or {
                "train": unnamed
            }
    return {}


def open_shards(files: Sequence[Path]) -> Shards:
    """Read the schema of a split's files: the image and label columns and the class names."""
    schemas = [_schema(file) for file in files]
    schema = schemas[0]
    image = next((name for name in ("img", "image") if name in schema.names), None)
    label = next((name for name in ("label", "fine_label") if name in schema.names), None)
    if image is None or label is None:
        raise LongtailError(
            f"{files[0]}: expected a column img or image and a column label or fine_label, got"
            f" {listing(schema.names, shown=20)}."
        )
    for file, other in zip(files, schemas, strict=True):
        _check_types(file, other, image, label)
    return Shards(tuple(files), image, label, _class_names(schema, label))


def _check_types(file: Path, schema: Any, image: str, label: str) -> None:
    """Refuse columns that are no images or no labels, with the types that they have."""
    if missing := [name for name in (image, label) if name not in schema.names]:
        raise LongtailError(f"{file}: expected the column {missing[0]!r}, as other files have it.")
    kind = schema.field(image).type
    fields = {field.name: field.type for field in kind} if str(kind).startswith("struct") else {}
    is_struct = bool(fields.keys() & {"bytes", "path"}) and _is_binary(fields.get("bytes", "null"))
    if not (is_struct or _is_text(kind) or _is_binary(kind)):
        raise LongtailError(
            f"{file}: expected column {image!r} to hold encoded images (struct<bytes, path> or"
            f" binary) or paths (string), got {kind}: write it in one of these types."
        )
    kind = schema.field(label).type
    if not (_is_text(kind) or re.fullmatch(r"u?int\d+|bool|null", str(kind))):
        raise LongtailError(
            f"{file}: expected column {label!r} to hold one integer or name for each image, got"
            f" {kind}: write it in one of these types."
        )


def _is_binary(kind: Any) -> bool:
    pattern = r"(large_|fixed_size_)?binary(_view)?(\[\d+\])?"
    return bool(re.fullmatch(rf"{pattern}|dictionary<values={pattern},.*|null", str(kind)))


def _is_text(kind: Any) -> bool:
    # A dictionary is text of few values, as pandas writes categories
    return bool(
        re.fullmatch(r"(large_)?string(_view)?|dictionary<values=(large_)?string.*", str(kind))
    )


def _class_names(schema: Any, label: str) -> tuple[str, ...] | None:
    """The names of classes in the metadata of the Hugging Face Hub; None in any other metadata."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError, IndexError):
        return None
    if not isinstance(names, list) or not names:
        return None
    return tuple(map(str, names))


def _schema(file: Path) -> Any:
    with _naming(file):
        schema = _pyarrow().read_schema(file)
    if twice := [name for name in dict.fromkeys(schema.names) if schema.names.count(name) > 1]:
        raise LongtailError(
            f"{file}: expected each column once, got {listing(twice)} twice: rename one."
        )
    return schema


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the file in errors of pyarrow."""
    _pyarrow()  # where it is missing, that is the error
    from pyarrow.lib import ArrowException

    check_regular(file, limit=LARGEST)
    try:
        yield
    # An error of pyarrow is an OSError, a ValueError (text that is no UTF-8), a KeyError or neither
    except (ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, LongtailError):
            raise
        raise LongtailError(
            f"{file} cannot be read as parquet ({str(error).splitlines()[0]}): download or write it"
            " again."
        ) from error


def parquet(path: Path) -> Source:
    """Images from a parquet file, or a folder of shards such as `train-00000-of-00001.parquet`."""
    files = parquet_files(path)
    if "train" not in files:
        raise LongtailError(
            f"{path}: expected parquet files of a training split (train-*.parquet), got only"
            f" {listing(files)}."
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
    if not labels["train"]:
        raise LongtailError(f"{path}: expected training images, got no row: write the file again.")
    for split, values in labels.items():
        if missing := [row for row, label in enumerate(values) if label is None]:
            raise LongtailError(
                f"{path}: expected a label for every image, got none in row {listing(missing)} of"
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
        lengths = {len(targets[split]), len(paths), *map(len, columns[split].values())}
        if len(lengths) > 1:  # of a damaged file
            raise LongtailError(
                f"{part.files[0]}: expected columns of one length, got {sorted(lengths)}: download"
                " or write it again."
            )
        ids = tuple(f"{split}/{name or row}" for row, name in enumerate(paths))
        images: ImageStore
        if blobs is None:
            images = FileImages(tuple(str(part.files[0].parent / str(file)) for file in paths))
        else:
            images = EncodedImages(tuple(blobs))
        splits[split] = Rows(images, targets[split], ids, columns=columns[split])
    return Source(path.resolve().stem, classes, splits, natural_groups, categories=categories)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise LongtailError(
            "reading parquet files needs pyarrow: run pip install 'longtail[data]'"
        ) from error
    return pyarrow.parquet
