"""The features of a frozen network evaluated: a linear classifier, and the nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.methods.classify import Classify
from longtail.nn import Frozen, Linear


class NearestNeighbours(nn.Module):
    """Classify features by the votes of the most similar training images (Wu et al., CVPR 2018).

    A neighbour with the cosine s has exp(s / temperature) votes; the logits are the logarithms of
    the votes of each class, and very low where it has none.

    Args:
        features: of the training images, (M, dim).
        target: their classes, (M,).
        classes: number of classes.
        neighbours: how many vote; all, where there are fewer.
        temperature: of the votes.

    >>> bank = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> knn = NearestNeighbours(bank, torch.tensor([0, 0, 1]), classes=2, neighbours=2)
    >>> knn(torch.tensor([[2.0, 0.1], [0.1, 2.0]])).argmax(1).tolist()
    [0, 1]
    """

    features: Tensor
    target: Tensor

    def __init__(
        self,
        features: Tensor,
        target: Tensor,
        *,
        classes: int,
        neighbours: int = 20,
        temperature: float = 0.1,
    ) -> None:
        super().__init__()
        if features.ndim != 2 or len(features) != len(target) or not len(target):
            raise LongtailError(
                "expected features (M, dim) and M classes, got"
                f" {tuple(features.shape)} and {len(target)}"
            )
        if neighbours < 1 or temperature <= 0:
            raise LongtailError(
                "expected at least one neighbour and a positive temperature, got"
                f" {neighbours} and {temperature}"
            )
        # Not in checkpoints: they are computed from the frozen network.
        self.register_buffer("features", F.normalize(features, dim=1), persistent=False)
        self.register_buffer("target", target, persistent=False)
        self.classes, self.temperature = classes, temperature
        self.neighbours = min(neighbours, len(target))

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        rows = F.normalize(features.to(self.features.dtype), dim=1)
        similar, nearest = (rows @ self.features.T).topk(self.neighbours, dim=1)
        votes = rows.new_zeros(len(rows), self.classes)
        votes.scatter_add_(1, self.target[nearest], (similar / self.temperature).exp())
        return votes.clamp_min(torch.finfo(torch.float32).tiny).log()


class Probe(Classify):
    """Train a linear classifier on a frozen network; nearest neighbours are a head beside it.

    The linear classifier predicts and is deployed. `heads` has the neighbours' prediction as
    "knn", so that it is scored on validation and test images, too.

    >>> from longtail.losses import CrossEntropy
    >>> from longtail.nn import build
    >>> network, image = build({"name": "fast_cnn", "size": 8, "width": 8}), torch.rand(4, 3, 8, 8)
    >>> bank = network.eval()(image).detach()
    >>> knn = NearestNeighbours(bank, torch.tensor([0, 1, 2, 2]), classes=3)
    >>> method = Probe(Frozen(network), Linear(network.dim, 3), CrossEntropy(), knn=knn)
    >>> list(method.heads(image))
    ['logits', 'knn']
    """

    def __init__(
        self,
        network: Frozen,
        head: Linear,
        loss: nn.Module,
        *,
        knn: NearestNeighbours | None = None,
    ) -> None:
        super().__init__(network, head, loss)
        self.knn = knn

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """Logits of the linear classifier, and those of the neighbours as "knn"."""
        features = self.network(image)
        logits = {"logits": self.head(features)}
        return logits if self.knn is None else {**logits, "knn": self.knn(features)}
