"""The arrays of a run, in its folder `analysis/`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from longtail import processes
from longtail.analysis.gradcam import enlarged
from longtail.analysis.relations import relations
from longtail.analysis.saliency import saliency_map
from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader, load_images
from longtail.data.views import CenterCrop
from longtail.errors import LongtailError
from longtail.methods.classify import Classify
from longtail.nn import Streams
from longtail.nn.networks import size_of
from longtail.records.files import atomic_write
from longtail.records.layout import AnalysisFolder


@contextmanager
def warn_on_error(what: str, again: str) -> Iterator[None]:
    """Let something fail that a finished run can do without, and say why it did, and what to call
    for another try.
    """
    try:
        yield
    except Exception as error:
        print(
            f"warning: {what}: {type(error).__name__}: {error}\nTry again with: {again}",
            file=sys.stderr,
        )


def analyse(
    method: Method[Any],
    data: Dataset,
    folder: str | Path,
    *,
    batch: int = 128,
    batches: int = 8,
    at: Literal["features", "image"] = "features",
    group: str = "few",
    images: int = 8,
) -> list[Path]:
    """Write what a trained method does on test images: `gradcam.npz` and, if it was trained with
    BatchFormer, `relations.npz`.

    The first shows where the network looks (`saliency_map`: attention rollout for transformers that
    answer with tokens, else Grad-CAM for the true class) in the first `images` test images of a
    `group`, one of each class. `longtail.runs.restore` gives the method and the data of a finished
    run. `longtail.report.figures.write_figures` plots the arrays."""
    split = data.test if len(data.test) else data.val
    if not len(split):
        raise LongtailError(
            f"expected test or validation images to analyse, got none in {data.name}"
        )
    if group not in data.groups.members:
        raise LongtailError(f"expected a group of {', '.join(data.groups.members)}, got {group!r}")
    shown = first_rows(split.target, data.groups.members[group])[:images]
    if not shown:
        having = [
            name for name, own in data.groups.members.items() if first_rows(split.target, own)
        ]
        raise LongtailError(
            f"expected a test or validation image of group {group}, got none in {data.name}: take"
            f" {' or '.join(having)}"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [AnalysisFolder(folder).arrays("gradcam")]
    write_arrays(written[0], _looks(method, data, shown))
    if isinstance(method, Classify) and isinstance(method.neck, Streams):
        # A loader gives each of several processes its share, and this one needs all.
        shuffled = TrainLoader(
            split,
            view=CenterCrop(_size(method), split.crop),
            batch=batch * processes.world_size(),
            seed=0,
        )
        found = relations(
            method, islice(shuffled.epoch(0), batches), classes=len(data.classes), at=at
        )
        written.append(AnalysisFolder(folder).arrays("relations"))
        write_arrays(
            written[1],
            {
                **found,
                "counts": data.counts.numpy(),
                "classes": np.array(data.classes),
                "at": np.array(at),
            },
        )
    return written


def _size(method: Method[Any]) -> int:
    """The side of the images that a method's network was built for."""
    spec: Any = method.deploy().spec
    return size_of(spec)


def first_rows(target: Tensor, members: Sequence[int]) -> list[int]:
    """The first row of each class that has one.

    >>> first_rows(torch.tensor([2, 0, 2, 0]), (0, 1, 2))
    [1, 0]
    """
    classes, rows = np.unique(target.numpy(), return_index=True)
    found = dict(zip(classes.tolist(), rows.tolist(), strict=True))
    return [found[own] for own in members if own in found]


def _looks(method: Method[Any], data: Dataset, rows: list[int]) -> dict[str, Any]:
    split = data.test if len(data.test) else data.val
    network, size = method.deploy(), _size(method)
    image = load_images(split, rows, size)
    target = split.target[rows]
    with torch.no_grad():
        answer = network.eval()(image.to(next(network.parameters()).device)).argmax(1).cpu()
    maps, kind = saliency_map(network, image, answer=target)
    if maps is None:
        raise LongtailError(f"expected a network that shows where it looks, got one with {kind}")
    return {
        "image": image.numpy(),
        "map": enlarged(maps, size).numpy(),
        "kind": np.array(kind),
        "target": target.numpy(),
        "answer": answer.numpy(),
        "id": np.array([split.ids[row] for row in rows]),
        "classes": np.array(data.classes),
    }


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays by name, for `numpy.load`."""
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
