"""Read images of pairs of an attribute and an object: lists, and the layouts of the field."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longtail.data.images.stores import FileImages
from longtail.data.pairs import pair_source
from longtail.data.readers.text import read_lines, read_rows
from longtail.data.source import Rows, Source, listing, split_named
from longtail.errors import LongtailError, torch_reason
from longtail.records.files import check_regular

PATH = ("path", "image")
LIMIT = 2_000_000_000  # bytes of the metadata
LISTS = {"train": "train_pairs.txt", "val": "val_pairs.txt", "test": "test_pairs.txt"}
NATURAL = "compositional-split-natural"
"""The split that the field uses; older distributions have another one beside it."""

PAIR_DATA = ("mit-states", "ut-zappos", "c-gqa")

Entry = tuple[str, str, str, str]  # path, attribute, object, split


def is_pair_list(path: Path) -> bool:
    """Whether a .csv has a header with attribute or object, and without label."""
    if path.suffix.lower() != ".csv":
        return False
    rows = read_rows(path)
    header = {cell.lower() for cell in rows[0][1]} if rows else set()
    return bool({"attribute", "object"} & header) and "label" not in header


def pair_list(path: Path, *, root: Path | None = None) -> Source:
    """Images from a .csv with a header: `path,attribute,object[,split]`.

    `path` may be called `image`. Paths are relative to `root`, by default to the list's folder. A
    pair may have no training image; its attribute and its object must have some. Without the column
    split, unseen pairs are chosen (`data.pairs.hold_out_pairs`).
    """
    rows = read_rows(path)
    header = [cell.lower() for cell in rows[0][1]]
    image = next((name for name in PATH if name in header), "path")
    missing = [name for name in (image, "attribute", "object") if name not in header]
    if missing:
        raise LongtailError(
            f"{path}: expected the columns path,attribute,object and perhaps split, missing"
            f" {listing(missing)}: got {','.join(header)}."
        )
    entries: list[Entry] = []
    for number, row in rows[1:]:
        cells = dict(zip(header, row, strict=False))
        values = [cells.get(name, "") for name in (image, "attribute", "object")]
        split = split_named(cells.get("split") or "train")
        if not all(values) or split is None:
            raise LongtailError(
                f"{path}, line {number}: expected a path, an attribute, an object and, if there is"
                f" a split, train, val or test, got {','.join(row)!r}."
            )
        entries.append((values[0], values[1], values[2], split))
    pairs = sorted({(attribute, obj) for _, attribute, obj, _ in entries})
    return _source(path.stem, entries, pairs, root or path.parent, where=str(path))


def pair_folder(path: Path) -> Path | None:
    """The folder of the split files, where a folder has the layout of `pair_splits`, or None."""
    if (path / LISTS["train"]).is_file():
        return path
    folders = sorted(place.parent for place in path.glob(f"*/{LISTS['train']}"))
    return next((place for place in folders if place.name == NATURAL), next(iter(folders), None))


def named_pairs(name: str, *, root: Path | None = None) -> Source:
    """MIT-States, UT-Zappos or C-GQA from the folder `root`, by default data/NAME."""
    root = Path("data") / name if root is None else root
    if not root.is_dir() or pair_folder(root) is None:
        raise LongtailError(
            f"expected the files of {name} in {root.resolve()}, got no {NATURAL}/{LISTS['train']}."
            " Pass the folder with that split, its metadata and images with --root. They are not"
            " downloaded automatically."
        )
    return replace(pair_splits(root), name=name)


def pair_splits(path: Path) -> Source:
    """MIT-States, UT-Zappos or C-GQA, in the layout of the released code of CGE and CompCos.

        ROOT/images/...                                the images
        ROOT/compositional-split-natural/train_pairs.txt, val_pairs.txt, test_pairs.txt
        ROOT/metadata_compositional-split-natural.t7   image, attr, obj and set of each image

    `path` is ROOT or the folder of the split. Lines of the lists are `attribute object`. Loading
    the metadata executes nothing in it. Rows without attribute or split, and those of unlisted
    pairs, are left out, as in the released code. Evaluation is the field's: the shorter side
    becomes 256, then the central square of 224 pixels is cropped.
    """
    folder = pair_folder(path)
    assert folder is not None
    root, lists = folder.parent, {}
    for split, name in LISTS.items():
        file = folder / name
        if not file.is_file():
            raise LongtailError(
                f"{folder}: expected {', '.join(LISTS.values())}, got no {name}: restore the file."
            )
        lists[split] = _pairs(file)
    pairs = sorted({pair for listed in lists.values() for pair in listed})
    entries, left_out = [], 0
    known = {*pairs}
    for row in _metadata(root / f"metadata_{folder.name}.t7"):
        named = split_named(row["set"])
        if named is None or row["attr"] == "NA" or (row["attr"], row["obj"]) not in known:
            left_out += 1
            continue
        entries.append((row["image"], row["attr"], row["obj"], named))
    unlisted = sorted(
        {
            (attribute, obj)
            for _, attribute, obj, split in entries
            if (attribute, obj) not in lists[split]
        }
    )
    if unlisted:
        raise LongtailError(
            f"{folder}: expected images of a split to be of its listed pairs, got others:"
            f" {listing(' '.join(pair) for pair in unlisted)}. The lists and the metadata are of"
            " different versions."
        )
    warnings = [f"{left_out:,} images without a split or of unlisted pairs were left out."]
    source = _source(
        root.resolve().name,
        [(_image(root / "images", name), a, o, split) for name, a, o, split in entries],
        pairs,
        root / "images",
        where=str(root),
        warnings=warnings if left_out else [],
    )
    return replace(source, size=224, geometry="crop", crop=0.875)


def _pairs(path: Path) -> set[tuple[str, str]]:
    pairs = set()
    for number, line in read_lines(path):
        words = line.split()
        if len(words) not in (0, 2):
            raise LongtailError(
                f"{path}, line {number}: expected `attribute object`, got {line.strip()!r}."
            )
        if words:
            pairs.add((words[0], words[1]))
    return pairs


def _metadata(path: Path) -> list[dict[str, str]]:
    """The rows of the metadata, which is a list of dictionaries that torch saved."""
    convert = (
        "Load it where you trust it, write a .csv with the columns path,attribute,object,split, and"
        " pass that file"
    )
    if not path.is_file():
        raise LongtailError(
            f"expected the metadata {path.name} in {path.parent}, got none: copy it there from the"
            " distribution of the data, or pass a .csv with path,attribute,object,split."
        )
    check_regular(path, limit=LIMIT)
    try:
        rows: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of a damaged file torch raises many types
        raise LongtailError(
            f"{path} contains more than lists, dictionaries and text, or is damaged"
            f" ({torch_reason(error)}). Reading it could run code. {convert}."
        ) from error
    keys = ("image", "attr", "obj", "set")
    fits = isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(key), str) for key in keys) for row in rows
    )
    if not fits:
        raise LongtailError(
            f"{path}: expected a list of rows with the texts {', '.join(keys)}. {convert}."
        )
    return rows  # type: ignore[no-any-return]


def _image(folder: Path, name: str) -> str:
    """An image's path in the folder: MIT-States has folders `ATTR OBJ`, its metadata `ATTR_OBJ`."""
    if os.path.isfile(folder / name):
        return name
    place, _, file = name.rpartition("/")
    spaced = f"{place.replace('_', ' ')}/{file}"
    return spaced if place and os.path.isfile(folder / spaced) else name


def _source(
    name: str,
    entries: list[Entry],
    pairs: list[tuple[str, str]],
    root: Path,
    *,
    where: str,
    warnings: list[str] | None = None,
) -> Source:
    splits = Counter(split for *_, split in entries)
    if not splits["train"]:
        raise LongtailError(f"{where}: no training image in {len(entries)} rows.")
    missing = [path for path, *_ in entries if not os.path.isfile(root / path)]
    if missing:
        raise LongtailError(
            f"{where}: expected every listed image under {root.resolve()}, got {len(missing):,} of"
            f" {len(entries):,} missing: {listing(missing)}. Correct the list, or pass the folder"
            " that the paths of a .csv are relative to with --root."
        )
    rows = {}
    for split in (split for split in ("train", "val", "test") if splits[split]):
        part = [entry for entry in entries if entry[3] == split]
        ids = tuple(path for path, *_ in part)
        images = FileImages(tuple(str(root / path) for path in ids))
        empty = Rows(images, np.zeros(len(ids), dtype=np.int64), ids)
        rows[split] = (empty, [(attribute, obj) for _, attribute, obj, _ in part])
    return pair_source(name, pairs, rows, warnings=warnings or ())
