"""Write the arrays of analyses to the folder `analysis/` of a run."""

from __future__ import annotations

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
from longtail.errors import LongtailError, warn
from longtail.methods.classify import Classify
from longtail.nn import Streams
from longtail.nn.networks import size_of
from longtail.records.files import atomic_write
from longtail.records.layout import AnalysisFolder


@contextmanager
def warn_on_error(what: str, command: str) -> Iterator[None]:
    """Turn an error in an optional step of a finished run into a warning.

    `what` names the step, `again` the command to repeat it.
    """
    try:
        yield
    except Exception as error:
        warn(f"{what}: {type(error).__name__}: {error}\nTry again with: {command}")


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
    """Write saliency maps on test images (`gradcam.npz`) and relations (`relations.npz`).

    Saliency maps are of the first test image of every class of a group (`saliency_map`). Relations
    are written if the method was trained with BatchFormer. `longtail.runs.restore` loads the method
    and the data of a finished run; `longtail.report.figures.write_figures` plots the arrays.

    Args:
        method: A trained method.
        data: Its dataset; validation images are used if there are no test images.
        folder: The output folder.
        batch: Batch size for relations.
        batches: Number of batches for relations.
        at: Measure gradients of relations at the features or at the pixels.
        group: The group of classes for saliency maps.
        images: The most saliency maps.

    Returns:
        The paths of the files.
    """
    split = data.test if len(data.test) else data.val
    if not len(split):
        raise LongtailError(f"{data.name} has neither test nor validation images to analyse")
    if group not in data.groups.members:
        raise LongtailError(f"expected a group of {', '.join(data.groups.members)}, got {group!r}")
    shown = first_rows(split.target, data.groups.members[group])[:images]
    if not shown:
        available = [
            name
            for name, members in data.groups.members.items()
            if first_rows(split.target, members)
        ]
        raise LongtailError(
            f"group {group} of {data.name} has no test or validation images: pass group"
            f" {' or '.join(available)}"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [AnalysisFolder(folder).arrays("gradcam")]
    write_arrays(written[0], _saliency(method, data, shown))
    if isinstance(method, Classify) and isinstance(method.neck, Streams):
        # The loader splits a batch over processes, and this one needs a full batch.
        shuffled = TrainLoader(
            split,
            view=CenterCrop(_size(method), split.crop),
            batch=batch * processes.world_size(),
            seed=0,
        )
        arrays = relations(
            method, islice(shuffled.epoch(0), batches), classes=len(data.classes), at=at
        )
        written.append(AnalysisFolder(folder).arrays("relations"))
        write_arrays(
            written[1],
            {
                **arrays,
                "counts": data.counts.numpy(),
                "classes": np.array(data.classes),
                "at": np.array(at),
            },
        )
    return written


def _size(method: Method[Any]) -> int:
    """The image size of a method's network."""
    spec: Any = method.deploy().spec
    return size_of(spec)


def first_rows(target: Tensor, members: Sequence[int]) -> list[int]:
    """The first row of every class that has one.

    >>> first_rows(torch.tensor([2, 0, 2, 0]), (0, 1, 2))
    [1, 0]
    """
    classes, rows = np.unique(target.numpy(), return_index=True)
    first = dict(zip(classes.tolist(), rows.tolist(), strict=True))
    return [first[label] for label in members if label in first]


def _saliency(method: Method[Any], data: Dataset, rows: list[int]) -> dict[str, Any]:
    split = data.test if len(data.test) else data.val
    network, size = method.deploy(), _size(method)
    image = load_images(split, rows, size)
    target = split.target[rows]
    with torch.no_grad():
        predicted = network.eval()(image.to(next(network.parameters()).device)).argmax(1).cpu()
    maps, kind = saliency_map(network, image, target=target)
    if maps is None:
        raise LongtailError(f"this network has no saliency maps ({kind})")
    return {
        "image": image.numpy(),
        "map": enlarged(maps, size).numpy(),
        "kind": np.array(kind),
        "target": target.numpy(),
        "answer": predicted.numpy(),
        "id": np.array([split.ids[row] for row in rows]),
        "classes": np.array(data.classes),
    }


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays by name, for `numpy.load`."""
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
