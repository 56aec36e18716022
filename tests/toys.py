"""A small method and small data for tests of the engine: everything that makes resuming hard, at
toy size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome


class ToyBatches:
    """Order and noise are functions of (seed, epoch, draw), like the real loader's."""

    def __init__(
        self, rows: int = 48, batch: int = 16, *, features: int = 6, classes: int = 3, seed: int = 0
    ) -> None:
        self.batch, self.seed = batch, seed
        generator = torch.Generator().manual_seed(5)
        self.target = torch.arange(rows) % classes
        self.image = torch.randn(classes, features, generator=generator)[self.target] + torch.randn(
            rows, features, generator=generator
        )

    def __len__(self) -> int:
        return -(-len(self.target) // self.batch)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Labelled]:
        order = torch.from_numpy(
            np.random.default_rng([self.seed, index]).permutation(len(self.target))
        )
        for at in range(start * self.batch, len(order), self.batch):
            rows = order[at : at + self.batch]
            yield {
                "image": self.image[rows],
                "target": self.target[rows],
                "position": torch.arange(at, at + len(rows)),
            }


class ToyMethod(Method[Labelled]):
    """An MLP with optional batch norm and dropout, and a momentum copy, moved in `after_step`."""

    slow: Tensor
    seen: Tensor

    def __init__(
        self, *, norm: bool = True, dropout: float = 0.3, features: int = 6, classes: int = 3
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [
            nn.Linear(features, 8),
            nn.BatchNorm1d(8) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(dropout),
        ]
        self.trunk, self.head = nn.Sequential(*parts), nn.Linear(8, classes)
        self.register_buffer("slow", torch.zeros(classes, 8))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        features = self.trunk(batch["image"])
        loss = F.cross_entropy(self.head(features), batch["target"])
        pull = 0.01 * (self.head.weight - self.slow).square().mean()
        return Outcome(
            {"class": loss, "pull": pull},
            notes={"size": features.detach().norm()},
            carry={"rows": batch["position"]},
        )

    @torch.no_grad()
    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        self.slow.lerp_(self.head.weight, 0.1)
        self.seen += len(outcome.carry["rows"])

    def predict(self, image: Tensor) -> Tensor:
        logits: Tensor = self.head(self.trunk(image))
        return logits

    def deploy(self) -> nn.Module:
        return nn.Sequential(self.trunk, self.head)


def noisy(batch: Any, clock: Clock) -> Any:
    """A mix that draws from torch, numpy and `random`, as real ones do."""
    import random

    scale = 0.1 * float(np.random.rand()) + 0.1 * random.random()  # noqa: NPY002
    return {**batch, "image": batch["image"] + scale * torch.randn_like(batch["image"])}


def digest(method: nn.Module) -> dict[str, bytes]:
    """Every tensor of a method, to the bit."""
    return {
        name: tensor.cpu().contiguous().numpy().tobytes()
        for name, tensor in method.state_dict().items()
    }


class Brightest(nn.Module):
    """Predicts the brightest channel, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3), requires_grad=False)
        self.calls = 0
        self.eval()

    def forward(self, image: Tensor) -> Tensor:
        self.calls += 1
        return image.mean((2, 3)) @ self.weight


def labelled_batch(rows: int = 4, first: int = 0) -> dict[str, Tensor]:
    image = torch.rand(rows, 3, 4, 4, generator=torch.Generator().manual_seed(first))
    return {
        "image": image,
        "target": torch.zeros(rows, dtype=torch.long),
        "position": torch.arange(first, first + rows),
    }
