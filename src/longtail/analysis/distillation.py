"""The arrays behind DeiT-LT's figures, written into the folder `analysis/` of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail import processes
from longtail.analysis.transformers import (
    Attention,
    attention_distance,
    attention_maps,
    entropy,
    feature_rank,
    head_tokens,
    rollout,
    transformer_of,
)
from longtail.analysis.writing import first_rows, write_arrays
from longtail.core import BatchTransform, Clock, nothing
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader, load_images
from longtail.data.views import View
from longtail.errors import LongtailError
from longtail.nn.networks import size_of
from longtail.records.files import read_journal
from longtail.records.kinds import read_recipe
from longtail.records.layout import AnalysisFolder, ArraysName, RunFolder


def analyse_tokens(
    network: nn.Module,
    data: Dataset,
    folder: str | Path,
    *,
    group: str | None = None,
    images: int = 8,
    at_most: int = 1024,
    batch: int = 64,
) -> list[Path]:
    """Write what a transformer's tokens attend to and hold: `rollout.npz`, `attention_distance.npz`
    and `rank.npz`.

    Rollouts are of the first test image (training image, where there is none) of each class of a
    `group`, the rarest that has any unless named (figure 5); distances are of that group's training
    images (figure 4b, figure S.3); ranks of every block's class token and, where there is one,
    distillation token are of that group's training images among all (figures 4c and S.4). At most
    `at_most` images of each are used, evenly chosen. `longtail.load(RUN).network` is a
    network. `longtail.report.figures.write_figures` plots the arrays.

    Args:
        network: The trained transformer.
        data: Its dataset.
        folder: Where the files are written.
        group: Of classes; the rarest that has images, unless given.
        images: Rollouts to write at most.
        at_most: Images for distances and ranks.
        batch: Images predicted at once.
    """
    split = data.test if len(data.test) else data.val
    if group is None:
        group = next(
            (
                name
                for name, members in reversed([*data.groups.members.items()])
                if np.isin(members, split.target).any()
            ),
            "few",
        )
    if group not in data.groups.members:
        raise LongtailError(f"expected a group of {', '.join(data.groups.members)}, got {group!r}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    spec: Any = network.spec
    size = size_of(spec)
    shown = first_rows(split.target, data.groups.members[group])[:images]
    if not shown:  # no such image: use training images
        split = data.train
        shown = first_rows(split.target, data.groups.members[group])[:images]
    shown_images = load_images(split, shown, size)
    maps = _attention_maps(network, shown_images)
    front = head_tokens(transformer_of(network))
    arrays: dict[str, Any] = {
        "image": shown_images.numpy(),
        "map": rollout(maps.attention, prefix=maps.prefix)[:, :front].cpu().numpy(),
    }
    arrays |= {
        "target": split.target[shown].numpy(),
        "classes": np.array(data.classes),
        "id": np.array([split.ids[row] for row in shown]),
    }
    files = AnalysisFolder(folder)
    write_arrays(files.arrays("rollout"), arrays)

    target = data.train.target.numpy()
    rare = np.isin(target, data.groups.members[group])
    chosen = _evenly(np.flatnonzero(rare), at_most)
    distances = [
        (
            attention_distance(part.attention, prefix=part.prefix, patch=part.patch)
            * len(part.attention),
            len(part.attention),
        )
        for part in (
            _attention_maps(network, load_images(data.train, rows, size))
            for rows in _batches(chosen, batch)
        )
    ]
    mean = torch.stack([total for total, _ in distances]).sum(0) / sum(
        rows for _, rows in distances
    )
    write_arrays(
        files.arrays("attention_distance"),
        {"distance": mean.cpu().numpy(), "group": np.array(group)},
    )

    def tokens(rows: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate(
            [
                _front(network, load_images(data.train, part, size), front)
                for part in _batches(rows, batch)
            ]
        )

    everything, tail = tokens(_evenly(np.arange(len(target)), at_most)), tokens(chosen)
    ranks = np.array(
        [
            [feature_rank(everything[:, b, t], tail[:, b, t]) for t in range(everything.shape[2])]
            for b in range(everything.shape[1])
        ]
    )
    write_arrays(
        files.arrays("rank"),
        {
            "rank": ranks,
            "tokens": np.array(["cls", "dist"][: ranks.shape[1]]),
            "group": np.array(group),
        },
    )
    names: tuple[ArraysName, ...] = ("rollout", "attention_distance", "rank")
    return [files.arrays(name) for name in names]


def analyse_teacher(
    teacher: nn.Module,
    data: Dataset,
    folder: str | Path,
    *,
    inside: View,
    outside: View,
    mix: BatchTransform = nothing,
    batch: int = 128,
    batches: int = 16,
    seed: int = 0,
) -> Path:
    """Write `entropy.npz`: the entropy of a teacher's predictions by class, on images as it was
    trained on and on images as the student gets them.

    Figure 3. `inside` is the teacher's view, such as `CropFlip(32)`; `outside` the student's, which
    `mix` mixes; a mixed image counts for the class with the largest share. Also writes the accuracy
    of the teacher on both (table 1).

    Args:
        teacher: From images to logits (N, C).
        data: Its training images are used.
        folder: Where the file is written.
        inside: The teacher's view.
        outside: The student's view.
        mix: The student's mixing.
        batch: Images predicted at once.
        batches: Number of batches.
        seed: Of views and mixing.
    """
    if teacher.training:
        raise LongtailError(
            "expected a teacher in evaluation mode, got one that still trains: call teacher.eval()"
            " first"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"classes": np.array(data.classes), "counts": data.counts.numpy()}
    before = np.random.get_state()  # noqa: NPY002 - mixing draws from numpy's global generator
    with torch.random.fork_rng(devices=[]):
        for name, view, transform in (("inside", inside, nothing), ("outside", outside, mix)):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            # A loader gives each of several processes its share, and this one needs all.
            loader: Any = TrainLoader(
                data.train, view=view, batch=batch * processes.world_size(), seed=seed
            )
            logits, target = _predict(teacher, islice(loader.epoch(0), batches), transform)
            arrays[name] = _by_class(entropy(logits), target, len(data.classes))
            arrays[f"{name}_accuracy"] = np.array((logits.argmax(1) == target).mean())
    np.random.set_state(before)  # noqa: NPY002
    path = AnalysisFolder(folder).arrays("entropy")
    write_arrays(path, arrays)
    return path


def curves(run: str | Path, *, stage: str = "student") -> dict[str, NDArray[np.float64]]:
    """Every number that the journal of a stage has for each epoch, by name, with `epoch` itself.

    `notes/distance` is figure 4a, the cosine distance between class token and distillation token;
    `val/balanced`, `val/cls/balanced` and `val/dist/balanced` are figure S.5's convergence. Where
    an epoch has no such number it is nan.
    """
    path = RunFolder(Path(run)).stage(stage).journal
    if not path.exists():
        raise LongtailError(f"expected a run with a stage {stage!r}, got no journal at {path}")
    lines = [line for line in read_journal(path) if line["kind"] == "epoch"]
    names = dict.fromkeys(
        name for line in lines for name, value in line.items() if isinstance(value, int | float)
    )
    return {
        name: np.array([line.get(name, np.nan) for line in lines], dtype=np.float64)
        for name in names
    }


def analyse_training(
    runs: Mapping[str, str | Path],
    folder: str | Path,
    *,
    stage: str = "student",
    begin: float | None = None,
) -> Path:
    """Write `training.npz`: token distances and validation accuracies over epochs, of runs by name.

    Figure 4a, with the start of re-weighting marked (`begin`, a share of training; `defer` of each
    run unless given), and figure S.5, by balanced accuracy: validation images are as long-tailed as
    the training images that they were held out of.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"runs": np.array([*runs])}
    for number, run in enumerate(runs.values()):
        numbers = curves(run, stage=stage)
        keywords = read_recipe(Path(run))["keywords"]
        share = keywords.get("defer", np.nan) if begin is None else begin
        # In epochs; a start at the end of training is no start
        arrays[f"{number}/begin"] = np.array(share * keywords["epochs"] if share < 1 else np.nan)
        wanted = (
            "epoch",
            "notes/distance",
            "val/balanced",
            "val/cls/balanced",
            "val/dist/balanced",
        )
        arrays |= {f"{number}/{name}": numbers[name] for name in wanted if name in numbers}
    path = AnalysisFolder(folder).arrays("training")
    write_arrays(path, arrays)
    return path


def _evenly(rows: NDArray[Any], at_most: int) -> NDArray[Any]:
    return (
        rows if len(rows) <= at_most else rows[np.linspace(0, len(rows) - 1, at_most).astype(int)]
    )


def _batches(rows: NDArray[Any], batch: int) -> Iterable[list[int]]:
    return (rows[first : first + batch].tolist() for first in range(0, len(rows), batch))


def _attention_maps(network: nn.Module, image: Tensor) -> Attention:
    return attention_maps(network, image.to(next(network.parameters()).device))


def _front(network: nn.Module, image: Tensor, tokens: int) -> NDArray[Any]:
    return np.asarray(_attention_maps(network, image).tokens[:, :, :tokens].cpu())


@torch.no_grad()
def _predict(
    teacher: nn.Module, batches: Iterable[Any], transform: BatchTransform
) -> tuple[NDArray[Any], NDArray[Any]]:
    logits, targets = [], []
    device = next((weight.device for weight in teacher.parameters()), torch.device("cpu"))
    for batch in batches:
        mixed = transform(batch, Clock(0, 1, 0, 1))
        logits.append(teacher(mixed["image"].to(device)).float().cpu().numpy())
        target = mixed["target"]
        targets.append((target if target.ndim == 1 else target.argmax(1)).numpy())
    return np.concatenate(logits), np.concatenate(targets)


def _by_class(values: NDArray[Any], target: NDArray[Any], classes: int) -> NDArray[np.float64]:
    counts = np.bincount(target, minlength=classes)
    with np.errstate(invalid="ignore"):
        return np.bincount(target, weights=values, minlength=classes) / counts
