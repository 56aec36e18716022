"""Read images of several domains: a tree domain/class/image, or a list of images per domain."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from longtail.data.images.stores import FileImages
from longtail.data.readers.folders import class_images, folder_names, ignored_files, is_image
from longtail.data.readers.lists import (
    NAMES,
    Entry,
    class_names,
    named_by_folders,
    read_list,
    source_of_entries,
)
from longtail.data.request import LIST_SUFFIXES
from longtail.data.source import Rows, Source, listing
from longtail.data.splits import one_group
from longtail.errors import LongtailError

SPLITS = {"train", "val", "valid", "validation", "crossval", "test", "full"}
"""Names of folders and endings of lists that divide the images of one domain."""


def domains(path: Path, *, root: Path | None = None) -> Source:
    """Images of several domains in a folder, all as training images with a column "domain".

    Its folders are the domains, whatever they are called (`domain_tree`). A folder without folders,
    or one that is given with `root`, has a list of images for each domain (`domain_lists`).
    """
    if root is None and folder_names(path):
        return domain_tree(path)
    return domain_lists(path, root=root)


def domain_tree(path: Path) -> Source:
    """Images in `domain/class/image`, as PACS, VLCS, OfficeHome and TerraIncognita have them.

    One folder between domain and class is passed through (`amazon/images/bike` of Office-31), and
    so are splits there: `train`, `val` and `test` are one domain's images. Folders without images
    and folders, such as `image_list`, are left out. VisDA-2017 has the domains `train` and
    `validation`.
    """
    paths: list[str] = []
    labels: list[str] = []
    names: list[str] = []
    ignored: list[str] = []
    skipped: list[str] = []
    empty: list[str] = []
    for domain in folder_names(path):
        places = class_folders(path / domain)
        before = len(paths)
        for place in places:
            images, others = class_images(place)
            paths += images
            labels += [place.name] * len(images)
            names += [domain] * len(images)
            ignored += others
        if len(paths) == before:
            only_files = not places and bool(os.listdir(path / domain))
            (skipped if only_files else empty).append(domain)
    if empty or not paths:
        raise LongtailError(
            f"{path}: expected domain/class/image, got no image in {listing(empty or skipped)}."
            " Remove these folders, or put the images of each class into a folder of its domain."
        )
    classes = tuple(sorted({*labels}))
    index = {name: number for number, name in enumerate(classes)}
    categories = tuple(sorted({*names}))
    rows = Rows(
        FileImages(tuple(paths)),
        np.array([index[label] for label in labels], dtype=np.int64),
        tuple(Path(file).relative_to(path).as_posix() for file in paths),
        columns={"domain": np.array([categories.index(name) for name in names], dtype=np.int64)},
    )
    warnings = []
    if skipped:
        warnings.append(f"folders without class folders were left out: {listing(skipped)}.")
    warnings += ignored_files(ignored, path)
    return Source(
        path.resolve().name,
        classes,
        {"train": rows},
        one_group,
        warnings=tuple(warnings),
        categories={"domain": categories},
    )


def class_folders(domain: Path) -> list[Path]:
    """The class folders of a domain, below one folder or below splits between the two."""
    names = folder_names(domain)
    splits = {name.lower(): domain / name for name in names}
    if names and {*splits} <= SPLITS and any(folder_names(place) for place in splits.values()):
        chosen = [splits["full"]] if "full" in splits else [*splits.values()]
        return [place / name for place in chosen for name in folder_names(place)]
    if len(names) == 1:
        between = domain / names[0]
        if folder_names(between) and not any(map(is_image, os.listdir(between))):
            return [between / name for name in folder_names(between)]
    return [domain / name for name in names]


def domain_lists(path: Path, *, root: Path | None = None) -> Source:
    """Images from a folder of lists `DOMAIN.txt` or `DOMAIN.csv`, with `path label` in each line.

    Lists such as `art_train.txt` and `art_val_kfold.txt` are of one domain. Paths are relative to
    `root`; by default to the lists' folder, or to the folder above it, where the images are. Labels
    may start at 1. Classes are named by `classes.txt`, by their labels if those are text, or after
    the folder of their images where each class has one.
    """
    lists: dict[str, list[Path]] = {}
    for file in sorted(path.iterdir()):
        if file.suffix.lower() in LIST_SUFFIXES and file.name != NAMES:
            lists.setdefault(_domain(file.stem), []).append(file)
    if not lists:
        raise LongtailError(
            f"{path}: expected folders domain/class/image, or a list of images for each domain such"
            " as art.txt, got neither."
        )
    entries: dict[tuple[str, str], Entry] = {}
    for domain, files in lists.items():
        for file in files:
            for image, label, _ in read_list(file):
                entries.setdefault((domain, image), (image, label, "train"))
    images = [*entries.values()]
    if root is None:
        beside = bool(images) and (path / images[0][0]).is_file()
        root = path if beside else path.parent
    numbers = {label for _, label, _ in images}
    if "0" not in numbers and all(label.isdecimal() for label in numbers):
        images = [(image, str(int(label) - 1), split) for image, label, split in images]
    labels = {label for _, label, _ in images}
    names = class_names(path) or named_by_folders(images, len(labels))
    source = source_of_entries(
        path.resolve().name, images, names, root, where=str(path), warnings=[]
    )
    categories = tuple(sorted(lists))
    column = np.array([categories.index(domain) for domain, _ in entries], dtype=np.int64)
    rows = replace(source.splits["train"], columns={"domain": column})
    return replace(
        source, splits={"train": rows}, grouping=one_group, categories={"domain": categories}
    )


def _domain(stem: str) -> str:
    """The domain in the name of a list.

    >>> _domain("art_painting_train_kfold"), _domain("Real_World")
    ('art_painting', 'Real_World')
    """
    return re.sub(rf"_({'|'.join(sorted(SPLITS))})(_kfold)?$", "", stem) or stem
