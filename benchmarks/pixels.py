"""Pixels as features: what the features of a trained network are compared with."""

from __future__ import annotations

from torch import nn


def pixels(size: int) -> nn.Module:
    """The normalised pixels of an image, (N, 3 * size * size)."""
    return nn.Flatten()
