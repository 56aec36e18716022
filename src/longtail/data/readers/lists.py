"""Read list files: one image per line with its label, as ImageNet-LT and others are published."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

import numpy as np

from longtail.data.columns import RESERVED, read_columns
from longtail.data.images.stores import FileImages
from longtail.data.readers.folders import is_image
from longtail.data.readers.text import read_lines, read_rows
from longtail.data.source import (
    Rows,
    Source,
    listing,
    named_targets,
    numbered_targets,
    split_named,
)
from longtail.data.splits import natural_groups, threshold_groups
from longtail.errors import LongtailError

Entry = tuple[str, str, str]  # path, label, split
NAMES = "classes.txt"


@dataclass(frozen=True)
class Published:
    """A published dataset and its list files."""

    train: str
    val: str | None
    test: str
    classes: int
    images: int  # in training
    balanced: int | None = None  # training images of each class, instead of those listed


_IMAGENET = Published(
    "ImageNet_LT_train.txt", "ImageNet_LT_val.txt", "ImageNet_LT_test.txt", 1000, 115_846
)
PUBLISHED = {
    "imagenet-lt": _IMAGENET,
    "imagenet-bal": replace(_IMAGENET, images=116_000, balanced=116),
    "imagenet-bal-160": replace(_IMAGENET, images=160_000, balanced=160),
    "places-lt": Published(
        "Places_LT_train.txt", "Places_LT_val.txt", "Places_LT_test.txt", 365, 62_500
    ),
    # As in all papers, the official validation set is the test set
    "inaturalist18": Published(
        "iNaturalist18_train.txt", None, "iNaturalist18_val.txt", 8142, 437_513
    ),
}


def image_list(path: Path, *, root: Path | None = None) -> Source:
    """Images from a list: a .txt with lines `path label`, or a .csv with `path,label[,split]`.

    A .csv may have a header, which may call the path `image`; its further columns become columns of
    the data (`columns.read_columns`).

    Paths are relative to `root`, by default to the list's folder. Labels are integers 0, 1, ... or
    text, whose classes are sorted by code point. A file `classes.txt` beside the list, one name per
    line, names integer labels and sets the order of text labels. If the list's name ends in
    `train`, lists of the same name that end in `val` (`valid`, `validation`) or `test` are read
    too.
    """
    entries, cells = _csv(path) if path.suffix.lower() == ".csv" else (_text(path), [])
    warnings = []
    if path.stem.lower().endswith("train") and all(split == "train" for *_, split in entries):
        for word in ("val", "valid", "validation", "test"):
            sibling = path.with_name(path.stem[:-5] + word + path.suffix)
            if sibling.is_file():
                split = split_named(word) or word
                if path.suffix.lower() == ".csv":
                    more, more_cells = _csv(sibling)
                    cells += more_cells
                else:
                    more = _text(sibling)
                entries += [(file, label, split) for file, label, _ in more]
                warnings.append(f"the {split} split was read from {sibling.name}.")
    names = None if path.name == NAMES else class_names(path.parent)
    source = source_of_entries(
        path.stem, entries, names, root or path.parent, where=str(path), warnings=warnings
    )
    return _with_columns(source, entries, cells)


def _with_columns(
    source: Source, entries: list[Entry], cells: Sequence[Mapping[str, str]]
) -> Source:
    """Add the columns that a .csv has besides path, label and split."""
    names = [*dict.fromkeys(name for row in cells for name in row)]
    used = [name for name in names if name in RESERVED]
    names = [name for name in names if name and name not in RESERVED]
    by_split: dict[str, dict[str, list[str]]] = {
        split: {name: [] for name in names} for split in source.splits
    }
    for (*_, split), row in zip(entries, cells, strict=False):
        for name in names:
            by_split[split][name].append(row.get(name, ""))
    columns, categories = read_columns(by_split)
    warning = f"columns with the names of other keys of a batch were dropped: {listing(used)}."
    return replace(
        source,
        splits={
            split: replace(rows, columns=columns[split]) for split, rows in source.splits.items()
        },
        categories=categories,
        warnings=(*source.warnings, warning) if used else source.warnings,
    )


def published(name: str, *, root: Path | None = None) -> Source:
    """ImageNet-LT, Places-LT or iNaturalist 2018, from the published list files in `root`.

    ImageNet-BAL has as many images of each class, from the folders of the training images of
    ImageNet-LT, and its validation and test images.

    Image paths are relative to `root`. Evaluation is the usual one: the shorter side becomes 256,
    then the central square of 224 pixels is cropped.
    """
    dataset = PUBLISHED[name]
    root = Path("data") / name if root is None else root
    files = {"train": dataset.train, "val": dataset.val, "test": dataset.test}
    lists = {split: root / file for split, file in files.items() if file is not None}
    missing = [file.name for file in lists.values() if not file.is_file()]
    if missing:
        raise LongtailError(
            f"expected the list files {', '.join(file.name for file in lists.values())} of {name}"
            f" in {root.resolve()}, got no {', '.join(missing)}. Put the published lists (lines of"
            " `path label`) and their images there, or pass their folder with --root. They are not"
            " downloaded automatically."
        )
    entries = [
        (path, label, split) for split, file in lists.items() for path, label, _ in _text(file)
    ]
    if dataset.balanced is not None:
        entries = _balanced(entries, dataset.balanced, root)
    names = (
        class_names(root)
        or named_by_folders(entries, dataset.classes)
        or tuple(map(str, range(dataset.classes)))
    )
    images = sum(split == "train" for *_, split in entries)
    warnings = (
        []
        if images == dataset.images
        else [
            f"{name} has {dataset.images:,} training images, but {dataset.train} gives {images:,}."
        ]
    )
    source = source_of_entries(name, entries, names, root, where=str(root), warnings=warnings)
    return Source(
        source.name,
        source.classes,
        source.splits,
        threshold_groups,
        size=224,
        geometry="crop",
        crop=0.875,
        warnings=source.warnings,
    )


def _balanced(entries: list[Entry], count: int, root: Path) -> list[Entry]:
    """Replace the training images by `count` of each class, from the folders of those listed.

    They are the images whose SHA-256 of "0 " and the file name (0 is the seed) is smallest, without
    those of validation and test, in the order of their names: 116 images are among the 160.
    """
    listed = {path for path, _, split in entries if split != "train"}
    folders: dict[str, PurePosixPath] = {}
    for path, label, split in entries:
        folder = PurePosixPath(path).parent
        if split == "train" and folders.setdefault(label, folder) != folder:
            raise LongtailError(
                f"expected the training images of class {label} in one folder, got"
                f" {folders[label]} and {folder}. Use the published lists."
            )
    chosen: list[Entry] = []
    for label, folder in folders.items():
        files = sorted(os.listdir(root / folder)) if (root / folder).is_dir() else []
        images = [name for name in files if is_image(name) and str(folder / name) not in listed]
        if len(images) < count:
            raise LongtailError(
                f"expected at least {count} training images in {root / folder}, got {len(images)}:"
                " put all training images of ImageNet there."
            )
        images.sort(key=lambda name: sha256(f"0 {name}".encode()).digest())
        chosen += [(str(folder / name), label, "train") for name in sorted(images[:count])]
    return chosen + [entry for entry in entries if entry[2] != "train"]


def read_list(path: Path) -> list[Entry]:
    """Path, label and split of each image in a .txt or .csv list."""
    return _csv(path)[0] if path.suffix.lower() == ".csv" else _text(path)


def class_names(folder: Path) -> tuple[str, ...] | None:
    """The class names in `classes.txt`, one per line, if the file exists."""
    path = folder / NAMES
    if not path.is_file():
        return None
    return tuple(line.strip() for _, line in read_lines(path) if line.strip())


def named_by_folders(entries: list[Entry], classes: int) -> tuple[str, ...] | None:
    """The folder names of the classes, such as n01440764, if each class has a folder."""
    folders: dict[str, set[str]] = {str(label): set() for label in range(classes)}
    for path, label, _ in entries:
        if label in folders:
            folders[label].add(PurePosixPath(path).parent.name)
    names = tuple(names.pop() for names in folders.values() if len(names) == 1)
    return names if len({*names}) == classes and all(names) else None


def source_of_entries(
    name: str,
    entries: list[Entry],
    names: tuple[str, ...] | None,
    root: Path,
    *,
    where: str,
    warnings: list[str],
) -> Source:
    """Build a source from entries, checking that the listed images exist.

    Args:
        name: Of the data.
        entries: Path, label and split of each image.
        names: Of the classes, for integer labels and as the order of text labels.
        root: The folder that paths are relative to.
        where: The list, for error messages.
        warnings: Of the source.
    """
    if not any(split == "train" for *_, split in entries):
        raise LongtailError(
            f"{where}: no training image in {len(entries)} lines. A line is `path label`, or"
            " path,label in a .csv."
        )
    missing = [path for path, _, _ in entries if not os.path.isfile(root / path)]
    if missing:
        raise LongtailError(
            f"{where}: expected every listed image under {root.resolve()}, "
            f"got {len(missing):,} of {len(entries):,} missing: {listing(missing)}. "
            "Pass the folder that the paths are relative to with --root, or correct the list."
        )
    labels: dict[str, list[str]] = {}
    paths: dict[str, list[str]] = {}
    for path, label, split in entries:
        labels.setdefault(split, []).append(label)
        paths.setdefault(split, []).append(path)
    if all(_is_integer(label) for _, label, _ in entries):
        numbers_of = {split: [int(label) for label in part] for split, part in labels.items()}
        classes, targets = numbered_targets(numbers_of, names, where=where)
    else:
        classes, targets = named_targets(labels)
        if names is not None:
            numbers = {word: number for number, word in enumerate(names)}
            if len(numbers) < len(names):
                same = next(word for number, word in enumerate(names) if numbers[word] != number)
                raise LongtailError(
                    f"{where}: classes.txt must name each class once, got {same!r} twice. Correct"
                    " it, or use integer labels."
                )
            unnamed = sorted(set(classes) - set(numbers))
            if unnamed:
                raise LongtailError(
                    f"{where}: labels are missing from classes.txt: {listing(unnamed)}. Add them"
                    " there or correct the list."
                )
            order = np.array([numbers[word] for word in classes], dtype=np.int64)
            classes, targets = names, {split: order[part] for split, part in targets.items()}
    splits = {
        split: Rows(
            FileImages(tuple(str(root / path) for path in paths[split])),
            targets[split],
            tuple(paths[split]),
        )
        for split in paths
    }
    return Source(name, classes, splits, natural_groups, warnings=tuple(warnings))


def _is_integer(label: str) -> bool:
    digits = label.removeprefix("-")
    # "007" is text, and so are digits that are too many to be a number
    return digits.isdecimal() and len(digits) < 100 and str(int(digits)) == digits


def _text(path: Path) -> list[Entry]:
    entries = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        parts = line.strip().rsplit(maxsplit=1)
        if len(parts) != 2:
            raise LongtailError(
                f"{path}, line {number}: expected `path label`, got {line.strip()!r}. Give every"
                " image a label."
            )
        entries.append((parts[0], parts[1], "train"))
    return entries


def _csv(path: Path) -> tuple[list[Entry], list[dict[str, str]]]:
    """The entries, and their cells in the further columns of the header."""
    rows = read_rows(path)
    columns = {"path": 0, "label": 1, "split": 2}
    others: dict[str, int] = {}
    head = [cell.lower() for cell in rows[0][1]] if rows else []
    if "path" not in head:
        head = ["path" if name == "image" else name for name in head]
    if {"path", "label"} <= set(head):
        others = {name: head.index(name) for name in head if name not in columns}
        columns = {name: head.index(name) for name in columns if name in head}
        rows = rows[1:]
    entries, cells = [], []
    for number, row in rows:
        values = {name: row[column] for name, column in columns.items() if column < len(row)}
        split = split_named(values.get("split") or "train")
        if not values.get("path") or not values.get("label") or split is None:
            raise LongtailError(
                f"{path}, line {number}: expected path,label or path,label,split (train, val or"
                f" test), got {','.join(row)!r}. If there are other columns, name all in a header"
                " such as `path,label`."
            )
        entries.append((values["path"], values["label"], split))
        cells.append({name: row[column] for name, column in others.items() if column < len(row)})
    return entries, cells
