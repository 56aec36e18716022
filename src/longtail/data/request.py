"""`DataRequest`: which data, how it is split, how its images become squares. Imports no torch.

Its fields are the data flags of the command line, the data keywords of `longtail.train`, keys of
`recipe.json` and what a sweep may vary. A new field is added here and to the signature of
`longtail.train`, nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from longtail.data.names import KNOWN
from longtail.errors import LongtailError
from longtail.naming import unknown

Geometry = Literal["pad", "crop", "stretch"]
"""How an image becomes the square input of a network.

`pad` adds a border in the median colour of the image's border, so that nothing is cut off. `crop`
evaluates the central square, and training views crop the full image. `stretch` resizes both sides
to the same length.
"""
LIST_SUFFIXES = (".txt", ".csv")
"""Suffixes of lists, whose image paths are relative to `root`."""
COMMA_FLAGS = frozenset({"train_domain"})
"""Data flags with commas in one value; the values of a sweep are then separated by semicolons."""
Pairs = Literal["closed", "open"]
"""Which pairs of attribute and object can be predicted.

`closed` are the pairs of the data, of which a split is evaluated among those of training and of
the split. `open` are all pairs of an attribute and an object.
"""
OnBadImage = Literal["refuse", "skip"]
Profile = Literal["exp", "step", "pareto"]
Protocol = Literal["holdout", "paper", "adapt"]
"""What training may use: `holdout` keeps validation images, `paper` trains on all images, and
`adapt` also gives the test images without their classes.
"""


@dataclass(frozen=True)
class DataRequest:
    """A request for a dataset.

    Two requests may give the same data, such as an explicit imbalance of 100 and the default of
    100. Datasets are identified by their hash, not by the request.
    """

    source: Annotated[
        str, "A known name, the path of a folder, a list or a file, or package.module:function."
    ]
    root: Annotated[str | None, "Folder with the files of a named dataset or of a list."] = None
    imbalance: Annotated[
        float | None, "Size of the largest class over the smallest, for the -lt datasets."
    ] = None
    profile: Annotated[Profile, "How class counts decrease, for the -lt datasets."] = "exp"
    protocol: Annotated[
        Protocol,
        "Hold a validation set out of training; or train on all images as papers do; or hold one"
        " out, and adapt to the test images without their classes.",
    ] = "holdout"
    split_seed: Annotated[int, "Seed of the held-out split, independent of the run's seed."] = 0
    on_bad_image: Annotated[
        OnBadImage, "Whether to stop at images that cannot be read, or to skip them."
    ] = "refuse"
    mirror: Annotated[
        bool | None,
        "Whether a mirrored image keeps its class; not so for text, digits, left and right.",
    ] = None
    geometry: Annotated[
        Geometry | None,
        "How images become squares: pad by default, crop for published datasets.",
    ] = None
    scoring: Annotated[
        str | None, "The score that ranks runs, for data that can be scored in several ways."
    ] = None
    test_domain: Annotated[
        str | None, "Test on all images of this domain, and train on the other domains."
    ] = None
    train_domain: Annotated[
        str | None, "Train on these domains only, separated by commas; needs --test-domain."
    ] = None
    word_vectors: Annotated[
        str | None, "Word vectors of attributes and objects: a text file (word v1 v2 ...) or .npz."
    ] = None
    pairs: Annotated[
        Pairs, "Which pairs of attribute and object can be predicted: those of the data, or all."
    ] = "closed"

    def __post_init__(self) -> None:
        for name, kind in data_types().items():
            value, choices = getattr(self, name), _choices(kind)
            if choices and value not in choices:
                names = " or ".join(choice for choice in choices if choice is not None)
                raise LongtailError(f"expected --{_dashed(name)} {names}, got {value!r}.")
        if self.split_seed < 0:
            raise LongtailError(f"--split-seed must be 0 or more, got {self.split_seed}.")
        if self.train_domain is not None and self.test_domain is None:
            raise LongtailError("--train-domain needs --test-domain: name the domain to test on.")

    @property
    def train_domains(self) -> tuple[str, ...]:
        """The domains of `train_domain`; empty: all but the test domain."""
        words = (self.train_domain or "").split(",")
        return tuple(word.strip() for word in words if word.strip())

    @classmethod
    def from_flags(cls, source: str | Path, flags: Mapping[str, Any]) -> Self:
        """Build a request for a name or path; `flags` may contain other keys, which are ignored."""
        given = {name: flags[name] for name in data_flags() if name in flags}
        for name in ("root", "word_vectors"):
            if given.get(name) is not None:
                given[name] = str(given[name])
        return cls(str(source), **given)

    def flags(self) -> dict[str, Any]:
        """All fields except the source, by name."""
        return {name: getattr(self, name) for name in data_flags()}

    def words(self) -> list[str]:
        """The flags of the command line that differ from their defaults."""
        given = {
            name: value
            for name, value in self.flags().items()
            if value != data_flags()[name].default
        }
        return flag_words(given)

    def with_root(self, root: str | Path) -> DataRequest:
        """Return a request for the same data in a new location.

        For a folder or a file of images, which has no root, `root` is its new path.
        """
        listed = Path(self.source).suffix.lower() in LIST_SUFFIXES or self.root is not None
        if self.source in KNOWN or listed:
            return replace(self, root=str(root))
        return replace(self, source=str(root), root=None)


@cache
def data_flags() -> Mapping[str, Field[Any]]:
    """The fields of a request that are flags: all except the source."""
    return {field.name: field for field in fields(DataRequest) if field.name != "source"}


@cache
def data_help() -> Mapping[str, str]:
    """The help sentence of each flag."""
    hints = get_type_hints(DataRequest, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in data_flags()}


@cache
def data_types() -> Mapping[str, Any]:
    """The type of each flag."""
    hints = get_type_hints(DataRequest)
    return {name: hints[name] for name in data_flags()}


def parse_field(name: str, text: str) -> Any:
    """Parse the value of a data flag from text, as in a sweep.

    >>> parse_field("imbalance", "50"), parse_field("geometry", "crop")
    (50.0, 'crop')
    """
    if name not in data_flags():
        raise unknown("data flag", name, data_flags())
    kind = data_types()[name]
    if type(None) in get_args(kind) and text.lower() == "none":
        return None
    choices = _choices(kind)
    kinds = {*get_args(kind)} - {type(None)} if get_origin(kind) is not Literal else set()
    scalar = next(iter(kinds), kind)
    try:
        if choices:
            return {str(choice): choice for choice in choices}[text]
        if scalar is bool:
            return {"true": True, "false": False}[text.lower()]
        value = scalar(text)
    except (ValueError, KeyError):
        expected = " or ".join(map(str, choices)) if choices else scalar.__name__
        raise LongtailError(f"expected {name} to be {expected}, got {text!r}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise LongtailError(f"expected {name} to be a finite number, got {text!r}")
    return value


def flag_words(values: Mapping[str, Any]) -> list[str]:
    """Convert values by name to command-line arguments.

    >>> flag_words({"split_seed": 3, "mirror": False, "root": None, "sizes": [1, 2]})
    ['--split-seed', '3', '--no-mirror', '--root', 'none', '--sizes', '1,2']
    """
    words = []
    for name, value in values.items():
        flag = _dashed(name)
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{flag}", "none" if value is None else text]
    return words


def _choices(kind: Any) -> tuple[Any, ...]:
    """The values of a Literal, including None if allowed; empty for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = get_args(kind)
    named = [value for part in parts if get_origin(part) is Literal for value in get_args(part)]
    return (*named, None) if named and type(None) in parts else tuple(named)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
