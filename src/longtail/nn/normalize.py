"""The first layer of every network: normalise images in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel of images in [0, 1].

    The numbers are part of the network's spec, not of its state dict.

    >>> Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])(torch.ones(1, 3, 2, 2)).unique().tolist()
    [2.0]
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std) <= 0:
            raise LongtailError(
                f"expected one mean and one positive std for each channel, got mean {list(mean)}"
                f" and std {list(std)}"
            )
        self.register_buffer(
            "mean",
            torch.tensor(mean, dtype=torch.get_default_dtype()).view(-1, 1, 1),
            persistent=False,
        )
        self.register_buffer(
            "std",
            torch.tensor(std, dtype=torch.get_default_dtype()).view(-1, 1, 1),
            persistent=False,
        )

    def forward(self, image: Tensor) -> Tensor:
        """The normalised images."""
        if not image.is_floating_point():
            raise LongtailError(
                f"expected images as floats in [0, 1], got {image.dtype}: for pixels from 0 to 255,"
                " pass image / 255"
            )
        return (image - self.mean) / self.std
