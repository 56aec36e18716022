"""What the images of a batch do to each other through BatchFormer (Hou et al., CVPR 2022, sections
3.3 and 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.core import Method
from longtail.errors import LongtailError
from longtail.methods.classify import Classify
from longtail.nn import BatchFormer, Streams


def attention(batchformer: BatchFormer, features: Tensor) -> Tensor:
    """How much each row attends to each other, layer by layer: (layers, N, N), the mean over heads,
    without dropout.

    >>> weights = attention(BatchFormer(8, layers=2), torch.randn(3, 8))
    >>> weights.shape, bool(torch.allclose(weights.sum(2), torch.ones(2, 3)))
    (torch.Size([2, 3, 3]), True)
    """
    alone = (
        ~torch.eye(len(features), dtype=torch.bool, device=features.device)
        if batchformer.attention == "self"
        else None
    )
    training, weights = batchformer.training, []
    try:
        batchformer.eval()
        rows = features.unsqueeze(1)
        with torch.no_grad():
            for layer in batchformer.layers:
                part: Any = layer
                weights.append(
                    part.self_attn(rows, rows, rows, attn_mask=alone, need_weights=True)[1][0]
                )
                rows = part(rows, src_mask=alone)
    finally:
        batchformer.train(training)
    return torch.stack(weights)


def cross_gradients(losses: Tensor, inputs: Tensor) -> Tensor:
    """The size of the gradient of each loss on each input: (N, N), row i for loss i (BatchFormer,
    equation 3).

    Without anything between the rows of a batch it is zero outside of the diagonal.

    >>> inputs = torch.tensor([[3.0, 4.0], [1.0, 0.0]], requires_grad=True)
    >>> cross_gradients(inputs.square().sum(1) / 2, inputs).tolist()
    [[5.0, 0.0], [0.0, 1.0]]
    """
    if losses.ndim != 1 or len(losses) != len(inputs):
        raise LongtailError(
            f"expected one loss for each of {len(inputs)} inputs, got shape {tuple(losses.shape)}"
        )
    rows = [
        torch.autograd.grad(loss, inputs, retain_graph=True)[0].flatten(1).norm(dim=1)
        for loss in losses
    ]
    return torch.stack(rows)


class ByClass:
    """Means over pairs of different images, by the classes of both; batches are added one by one.

    >>> pairs = ByClass(2)
    >>> values = torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]])
    >>> pairs.add(values, torch.tensor([0, 0, 1]))
    >>> pairs.matrix().tolist(), pairs.rows().tolist()  # no class has a pair within class 1
    ([[2.0, 3.0], [5.5, nan]], [2.5, 5.5])
    """

    def __init__(self, classes: int) -> None:
        self.sums, self.counts = np.zeros((classes, classes)), np.zeros((classes, classes))

    def add(self, values: Tensor, target: Tensor) -> None:
        """Add the values (N, N) of a batch, without those of an image with itself."""
        labels = np.asarray(target.cpu())
        first, second = np.nonzero(~np.eye(len(labels), dtype=bool))
        np.add.at(
            self.sums,
            (labels[first], labels[second]),
            values.detach().cpu().double().numpy()[first, second],
        )
        np.add.at(self.counts, (labels[first], labels[second]), 1)

    def matrix(self) -> NDArray[np.float64]:
        """Means (classes, classes); nan without pairs."""
        return _mean(self.sums, self.counts)

    def rows(self) -> NDArray[np.float64]:
        """Means over all pairs that begin with a class."""
        return _mean(self.sums.sum(1), self.counts.sum(1))


def _mean(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return sums / counts


def relations(
    method: Method[Any],
    batches: Iterable[Mapping[str, Any]],
    *,
    classes: int,
    at: Literal["features", "image"] = "features",
) -> dict[str, NDArray[np.float64]]:
    """The statistics of figure 6 and of the attention, for a method trained with BatchFormer.

    - `gradient` (classes,): the mean norm of the gradient of the loss of a class, after
      BatchFormer, with respect to the other images of the batch, at the features that enter
      BatchFormer or, 10 to 100 times slower, at the pixels;
    - `gradient_pairs` (classes, classes): the same by the class of the other image;
    - `attention_pairs` (classes, classes): the mean attention, over heads and layers, of the images
      of a class to others;
    - `attention_self` (classes,): to themselves; `uniform`: the value of uniform attention.

    Dropout is off. Batches should be shuffled and have the same size.
    """
    if not isinstance(method, Classify) or not isinstance(method.neck, Streams):
        raise LongtailError(
            "expected a classifier that was trained with BatchFormer, got another method: train"
            " with --batchformer on"
        )
    if at not in ("features", "image"):
        raise LongtailError(f"expected the gradient at features or at image, got {at!r}")
    batchformer, method = method.neck.batchformer, method.eval()
    gradient, attentions = ByClass(classes), ByClass(classes)
    oneself, sizes = (np.zeros(classes), np.zeros(classes)), []
    device = next(method.parameters()).device
    for batch in batches:
        target = batch["target"]
        with torch.enable_grad():
            image = batch["image"].detach().to(device).requires_grad_(at == "image")
            features = (
                method.network(image)
                if at == "image"
                else method.network(image).detach().requires_grad_()
            )
            logits = method.head(batchformer.attend(features))
            losses = torch.stack(
                [
                    method.loss(row[None], y[None])
                    for row, y in zip(logits, target.to(device), strict=True)
                ]
            )
            gradient.add(
                cross_gradients(losses, image if at == "image" else features).cpu(), target
            )
        weights = attention(batchformer, features.detach()).mean(0).cpu()
        attentions.add(weights, target)
        np.add.at(oneself[0], target.numpy(), weights.diagonal().double().numpy())
        np.add.at(oneself[1], target.numpy(), 1)
        sizes.append(len(target))
    if not sizes:
        raise LongtailError("expected at least one batch, got none")
    return {
        "gradient": gradient.rows(),
        "gradient_pairs": gradient.matrix(),
        "attention_pairs": attentions.matrix(),
        "attention_self": _mean(*oneself),
        "uniform": np.array(1 / float(np.mean(sizes))),
    }
