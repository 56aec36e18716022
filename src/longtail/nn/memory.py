"""State of a method besides trainable weights: frozen networks, teachers, queues."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError


class Frozen(nn.Module):
    """A module that is always in eval mode and without gradient, batch-norm included.

    >>> frozen = Frozen(nn.BatchNorm1d(2)).train()
    >>> frozen.module.training, any(p.requires_grad for p in frozen.parameters())
    (False, False)
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Frozen:
        """Stay in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> Any:
        """The output of the module."""
        return self.module(*inputs)


class Teacher(Frozen):
    """A frozen network that resizes images to the size it was trained on.

    Resizing is bicubic without antialiasing, as in DeiT-LT: a 32-pixel image that was enlarged to
    224 pixels is restored exactly.

    >>> Teacher(nn.Flatten(), size=2)(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 12])
    """

    def __init__(self, network: nn.Module, *, size: int) -> None:
        super().__init__(network)
        self.size = size

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> Any:
        """The output of the network for images of any size."""
        (image,) = inputs
        if image.shape[-2:] != (self.size, self.size):
            image = F.interpolate(
                image, size=(self.size, self.size), mode="bicubic", antialias=False
            )
        return self.module(image)


class Queue(nn.Module):
    """The last `size` rows that were pushed; initially random unit vectors (MoCo, He et al. 2020).

    Calling it returns a copy, because `push` would overwrite rows that autograd still needs.

    >>> queue = Queue(2, 3)
    >>> queue.push(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> queue.push(torch.tensor([[5.0, 5.0], [6.0, 6.0]]))
    >>> queue().tolist()
    [[6.0, 6.0], [0.0, 1.0], [5.0, 5.0]]
    """

    stored: Tensor
    position: Tensor

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        if dim < 1 or size < 1:
            raise LongtailError(f"expected a positive dim and size, got {dim} and {size}")
        self.register_buffer("stored", F.normalize(torch.randn(size, dim), dim=1))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self) -> Tensor:
        """A copy of all rows (size, dim)."""
        return self.stored.clone()

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Replace the oldest rows. Call it in `after_step` of a method only."""
        size, dim = self.stored.shape
        if rows.ndim != 2 or rows.shape[1] != dim:
            raise LongtailError(f"expected rows (N, {dim}), got {tuple(rows.shape)}")
        if len(rows) > size:
            raise LongtailError(
                f"the queue must be at least as long as a batch, got a queue of {size} and"
                f" {len(rows)} rows: enlarge the queue"
            )
        places = (self.position + torch.arange(len(rows), device=rows.device)) % size
        self.stored[places] = rows.to(self.stored.dtype)
        self.position.copy_((self.position + len(rows)) % size)
