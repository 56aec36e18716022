"""Pictures of what a finished run gets wrong in the tail, and where its network looks: `analysis/examples.npz`, for the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.analysis.gradcam import grad_cam, last_map
from longtail.analysis.transformers import look, rollout, transformer_of
from longtail.data.dataset import Dataset
from longtail.data.views import Plain
from longtail.metrics.accuracy import recall
from longtail.metrics.calibration import confidence as confidence_of
from longtail.metrics.files import read_predictions
from longtail.nn.experts import Experts

CLASSES, EACH, SIDE = 5, 4, 64
"""So many classes, images of each, and pixels of a side at most: 20 pictures of 12 kB."""


@contextmanager
def unharmed(what: str, command: str) -> Iterator[None]:
    """Let something fail that a finished run can do without, and say why it did, and what to call for another try."""
    try:
        yield
    except Exception as error:
        print(f"warning: {what}: {type(error).__name__}: {error}\nTry again with: {command}", file=sys.stderr)


def write_examples(folder: Path, network: nn.Module, dataset: Dataset, *, size: int, confidence: str = "softmax") -> Path | None:
    """Write wrongly answered images of the worst classes of the tail, from the run's own predictions; None where there are none.

    The tail is the group of the rarest classes that has images to judge by. Of each class, the surest mistakes come first.
    """
    name, split = ("test", dataset.test) if len(dataset.test) else ("val", dataset.val)
    if not len(split):
        return None
    found, ids = read_predictions(folder / "predictions" / f"{name}.npz")
    logits, target = found.logits["logits"], found.target
    members = next(own for own in reversed([*dataset.groups.members.values()]) if np.isin(own, target).any())
    sure = confidence_of(logits, confidence)
    rows = chosen(logits, target, members=members, sure=sure)
    if not len(rows):
        return None
    view = Plain(size)
    image = torch.stack([view(split.pictures.image(int(found.index[row]))) for row in rows]).float() / 255
    answer = logits[rows].argmax(1)
    maps, kind = where_it_looks(network, image, answer=torch.from_numpy(answer))
    arrays: dict[str, Any] = {
        "image": _bytes(F.interpolate(image, SIDE, mode="area") if size > SIDE else image).permute(0, 2, 3, 1).numpy(),
        "target": target[rows],
        "answer": answer,
        "confidence": sure[rows].astype(np.float32),
        "id": ids[rows],
        "split": np.array(name),
        "kind": np.array(kind),
    }
    if maps is not None:
        arrays["map"] = _bytes(maps / maps.amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)).numpy()
    path = folder / "analysis" / "examples.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, **arrays)
    part.replace(path)
    return path


def chosen(logits: NDArray[Any], target: NDArray[Any], *, members: tuple[int, ...], sure: NDArray[Any]) -> NDArray[np.int64]:
    """The rows to show: of the worst classes among `members` the mistakes, the surest first.

    >>> logits = np.array([[2.0, 1.0], [4.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> chosen(logits, np.array([1, 1, 1, 0]), members=(1,), sure=logits.max(1)).tolist()
    [1, 0]
    """
    recalls, answer = recall(logits, target, logits.shape[1]), logits.argmax(1)
    missed = [own for own in members if recalls[own] < 1]  # also leaves out what has no images: its recall is nan
    worst = sorted(missed, key=lambda own: (recalls[own], own))[:CLASSES]
    rows = []
    for own in worst:
        wrong = np.flatnonzero((target == own) & (answer != own))
        rows.append(wrong[np.argsort(-sure[wrong], kind="stable")][:EACH])
    return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)


def where_it_looks(network: nn.Module, image: Tensor, *, answer: Tensor) -> tuple[Tensor | None, str]:
    """Maps (N, H, W) of at least 0, and what they are; None and the reason for a network that has none.

    Attention rollout to the tokens that answer, where a vision transformer answers with tokens; Grad-CAM for the answer elsewhere.
    """
    network.eval()  # a deployed network may be a new module around trained ones, and modules begin in training mode
    device = next(network.parameters()).device
    try:
        transformer = transformer_of(network)
    except ValueError:
        transformer = None
    try:
        if transformer is None:
            experts = next((own for own in network.modules() if isinstance(own, Experts)), None)
            layer = last_map(network, image[:1].to(device)) if experts is None else experts.trunk  # what all of them look at
            _check_channels_first(network, layer, image[:1].to(device))
        elif transformer.global_pool == "token":
            tokens = 2 if hasattr(transformer, "dist_token") else 1  # others in front are registers, which no head reads
            parts = [look(network, part.to(device)) for part in image.split(4)]  # attention is large
            return torch.cat([rollout(own.attention, prefix=own.prefix)[:, :tokens].mean(1) for own in parts]).cpu(), "attention rollout"
        else:
            layer = transformer.blocks[-1].norm1
        return grad_cam(network, image.to(device), target=answer.to(device), layer=layer).cpu(), "Grad-CAM"
    except ValueError as error:
        return None, f"no maps: {error}"


def _check_channels_first(network: nn.Module, layer: nn.Module, image: Tensor) -> None:
    shapes: list[torch.Size] = []
    handle = layer.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    try:
        with torch.no_grad():
            network(image)
    finally:
        handle.remove()
    if shapes[0][2] != shapes[0][3]:  # images are square
        raise ValueError(f"expected maps (N, C, H, W) for Grad-CAM, got {tuple(shapes[0])} from this network")


def _bytes(values: Tensor) -> Tensor:
    return values.mul(255).round().clamp(0, 255).byte()
