"""Read a folder of class folders, with or without train, val and test above them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from longtail.data.images.stores import FileImages
from longtail.data.source import Rows, Source, listing, split_named
from longtail.data.splits import natural_groups
from longtail.errors import LongtailError

SUFFIXES = {
    ".jpg",
    ".jpeg",
    ".jfif",
    ".png",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".webp",
    ".ppm",
    ".pgm",
    ".pbm",
}
IGNORED = {"thumbs.db", "desktop.ini"}  # written by file browsers; hidden files are ignored too


def folder(path: Path, *, least: int = 2) -> Source:
    """Images in class folders, at least `least` of them; classes are sorted by code point.

    Images may be in sub-folders of a class folder. The folders are splits instead of classes if
    `train` is among them and all are called train, val (valid, validation) or test.
    """
    folders = folder_names(path)
    parts, known = {"train": path}, {split_named(name) for name in folders}
    if "train" in known and len(known - {None}) > 1 and None in known:
        not_splits = listing(name for name in folders if split_named(name) is None)
        raise LongtailError(
            f"{path}: expected either splits (train, val, test) or classes, got both: {not_splits}"
            f" beside {listing(name for name in folders if split_named(name))}. Move what is not a"
            " split elsewhere, or rename classes that have the name of a split."
        )
    if "train" in known and None not in known:
        parts = {}
        for name in folders:
            split = split_named(name)
            assert split is not None
            if split in parts:
                raise LongtailError(
                    f"{path}: expected one folder for {split}, got {parts[split].name} and {name}."
                    " Merge or rename them."
                )
            parts[split] = path / name
    names = {split: folder_names(place) for split, place in parts.items()}
    if not names["train"]:
        raise LongtailError(
            f"{parts['train']}: expected a folder of class folders, got none in it. Put the images"
            " of each class into a folder with its name."
        )
    classes = tuple(sorted({name for part in names.values() for name in part}))
    index = {name: i for i, name in enumerate(classes)}
    splits, ignored = {}, []
    for split, place in parts.items():
        paths, target, empty = [], [], []
        for name in names[split]:
            images, others = class_images(place / name)
            paths += images
            target += [index[name]] * len(images)
            ignored += others
            if not images:
                empty.append(name)
        if split == "train" and empty:
            raise LongtailError(
                f"{place}: expected at least one training image in every class, got none in"
                f" {listing(empty, shown=20)} (with the suffixes {' '.join(sorted(SUFFIXES))}). Add"
                " images or remove the folder."
            )
        if paths:
            ids = tuple(Path(file).relative_to(path).as_posix() for file in paths)
            splits[split] = Rows(FileImages(tuple(paths)), np.array(target, dtype=np.int64), ids)
    loose = [
        entry.name
        for place in parts.values()
        for entry in os.scandir(place)
        if entry.is_file() and is_image(entry.name)
    ]
    if len(classes) < least:
        raise LongtailError(
            f"{path}: expected at least two class folders, got only {classes[0]}. If the classes"
            f" are inside it, give {path / classes[0]}."
        )
    warnings = []
    same: list[str] = []
    with suppress(OSError, LongtailError):  # a folder that cannot be listed is reported later
        same = _domain_folders(parts["train"])
    if same:
        warnings.append(
            f"the folders {listing(names['train'])} are the classes, but most have the same folders"
            f" {listing(same)}: if they are domains, pass --test-domain {names['train'][-1]}."
        )
    if loose:
        warnings.append(
            f"{len(loose):,} images lie beside the class folders and were left out:"
            f" {listing(sorted(loose))}."
        )
    warnings += ignored_files(ignored, path)
    return Source(path.resolve().name, classes, splits, natural_groups, warnings=tuple(warnings))


def ignored_files(files: Sequence[str], folder: Path) -> list[str]:
    """The warning about files that are no images; none without such files."""
    relative = listing(Path(file).relative_to(folder).as_posix() for file in files)
    text = f"{len(files):,} files are not images by their suffix and were left out: {relative}."
    return [text] * bool(files)


def _domain_folders(path: Path) -> list[str]:
    """The folders that most folders of `path` have, if these make up most of each: classes.

    Then the folders of `path` may be domains, some of which do not have all classes.
    """
    places = [path / name for name in folder_names(path)]
    if all(len(folder_names(place)) == 1 for place in places):  # domain/images/class/image
        places = [place / folder_names(place)[0] for place in places]
    inside = [folder_names(place) for place in places]
    counts = Counter(name for names in inside for name in names)
    shared = sorted(name for name, count in counts.items() if 2 * count > len(places) > 1)
    alike = len(shared) > 1 and all(2 * len({*names} & {*shared}) > len(names) for names in inside)
    loose = alike and any(is_image(name) for place in places for name in os.listdir(place))
    return shared if alike and not loose else []


def folder_names(path: Path) -> list[str]:
    """The visible folders in a folder, sorted."""
    names = sorted(
        entry.name
        for entry in os.scandir(path)
        if entry.is_dir() and not entry.name.startswith(".")
    )
    # The name of a class is written into files and pages, so it must be valid UTF-8
    invalid = [name for name in names if any("\udc80" <= letter <= "\udcff" for letter in name)]
    if invalid:
        raise LongtailError(
            f"{path}: expected class folders with names in UTF-8, got"
            f" {listing(map(ascii, invalid))}. Rename them."
        )
    return names


def is_image(name: str) -> bool:
    """Whether a file is an image by its suffix, and not hidden."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def walked(path: Path, unreadable: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Walk a folder: each folder inside with the names of its files, sorted.

    Hidden names and links to a parent folder are skipped. Folders that cannot be listed, for lack
    of permission or because a disk fails, are added to `unreadable`.
    """
    visited: set[str] = set()

    def note(error: OSError) -> None:
        unreadable.append(str(error.filename))

    for place, folders, files in os.walk(path, onerror=note, followlinks=True):
        visited.add(os.path.realpath(place))
        visible = (name for name in folders if not name.startswith("."))
        folders[:] = sorted(
            name for name in visible if not _links_to_parent(os.path.join(place, name), visited)
        )
        yield place, sorted(name for name in files if not name.startswith("."))


def _links_to_parent(place: str, visited: set[str]) -> bool:
    real = os.path.realpath(place)
    return os.path.islink(place) and any(
        folder == real or folder.startswith(os.path.join(real, "")) for folder in visited
    )


def class_images(path: Path) -> tuple[list[str], list[str]]:
    """The images in a folder and in all folders inside, and the other files there.

    A folder that cannot be listed is among the images, and reported when they are read.
    """
    images: list[str] = []
    others: list[str] = []
    unreadable: list[str] = []
    for place, files in walked(path, unreadable):
        for name in files:
            if name.lower() in IGNORED:
                continue
            (images if is_image(name) else others).append(os.path.join(place, name))
    return images + unreadable, others
