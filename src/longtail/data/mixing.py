"""Mixup, CutMix and label smoothing: transforms of (batch, clock) that return a new batch.

Row i is mixed with row N - 1 - i, so batches may have any number of rows. Random numbers come from
numpy's global generator, which the engine seeds at every step. To stop mixing at some point of
training, wrap a transform in `schedules.Until`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from longtail.core import Clock, Labelled
from longtail.errors import LongtailError


def _soft(target: Tensor, classes: int, smoothing: float) -> Tensor:
    """(1 - s) target + s / C, from class indices or distributions."""
    if target.ndim == 1:
        target = F.one_hot(target, classes).float()
    return target * (1 - smoothing) + smoothing / classes


def _mixed_images(image: Tensor, lam: float) -> Tensor:
    return image * lam + image.flip(0) * (1 - lam)


def _cut_images(image: Tensor, lam: float) -> tuple[Tensor, float]:
    """Paste a rectangle of about (1 - lam) of the area from the partners.

    Returns the images and the exact lam.
    """
    height, width = image.shape[-2:]
    tall, wide = int(height * np.sqrt(1 - lam)), int(width * np.sqrt(1 - lam))
    row, column = np.random.randint(height), np.random.randint(width)  # noqa: NPY002
    top, bottom = max(row - tall // 2, 0), min(row + (tall + 1) // 2, height)
    left, right = max(column - wide // 2, 0), min(column + (wide + 1) // 2, width)
    result = image.clone()
    result[:, :, top:bottom, left:right] = image.flip(0)[:, :, top:bottom, left:right]
    return result, 1 - (bottom - top) * (right - left) / (height * width)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise LongtailError(f"{name} must be above 0, got {value}")


def _probability(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise LongtailError(f"{name} must be in [0, 1], got {value}")


def _smoothing(value: float) -> None:
    if not 0 <= value < 1:
        raise LongtailError(f"smoothing must be in [0, 1), got {value}: 1 would remove the target")


@dataclass(frozen=True)
class Smooth:
    """Label smoothing: the targets become (1 - s) onehot + s / C (Szegedy et al., 2016)."""

    classes: int
    smoothing: float

    def __post_init__(self) -> None:
        _positive(classes=self.classes)
        _smoothing(self.smoothing)

    def __call__(self, batch: Labelled, clock: Clock) -> Labelled:
        """Return the batch with smoothed targets (N, C)."""
        return {**batch, "target": _soft(batch["target"], self.classes, self.smoothing)}


@dataclass(frozen=True, kw_only=True)
class MixupCutMix:
    """Mixup or CutMix, chosen at random for each batch, as in DeiT and LiVT.

    Mixup (Zhang et al., 2018): lam x_i + (1 - lam) x_j, lam ~ Beta(mixup, mixup). CutMix (Yun et
    al., 2019): a rectangle of x_i is replaced by that of x_j; lam is the exact share that remains.
    Targets are smoothed, then mixed with the same lam. CutMix is chosen with probability
    `switch`. With probability 1 - `probability` a batch is not mixed; its targets are still (N, C).
    """

    classes: int
    mixup: float = 0.8
    cutmix: float = 1.0
    switch: float = 0.5
    probability: float = 1.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _positive(classes=self.classes, mixup=self.mixup, cutmix=self.cutmix)
        _probability(switch=self.switch, probability=self.probability)
        _smoothing(self.smoothing)

    def __call__(self, batch: Labelled, clock: Clock) -> Labelled:
        """Return the batch with mixed images and targets (N, C)."""
        image, target = batch["image"], _soft(batch["target"], self.classes, self.smoothing)
        if not np.random.rand() < self.probability:  # noqa: NPY002
            return {**batch, "target": target}
        use_cutmix = np.random.rand() < self.switch  # noqa: NPY002
        alpha = self.cutmix if use_cutmix else self.mixup
        lam = float(np.random.beta(alpha, alpha))  # noqa: NPY002
        if use_cutmix:
            image, lam = _cut_images(image, lam)
        else:
            image = _mixed_images(image, lam)
        return {**batch, "image": image, "target": target * lam + target.flip(0) * (1 - lam)}


@dataclass(frozen=True, kw_only=True)
class Mixup:
    """Mixup (Zhang et al., 2018): lam x_i + (1 - lam) x_j, lam ~ Beta(alpha, alpha).

    Targets are mixed with the same lam.
    """

    classes: int
    alpha: float

    def __post_init__(self) -> None:
        _positive(mixup=self.alpha, classes=self.classes)

    def __call__(self, batch: Labelled, clock: Clock) -> Labelled:
        """Return the batch with mixed images and targets (N, C)."""
        return MixupCutMix(classes=self.classes, mixup=self.alpha, switch=0.0)(batch, clock)


@dataclass(frozen=True, kw_only=True)
class CutMix:
    """CutMix (Yun et al., 2019): a rectangle of x_i is replaced by that of x_j.

    lam ~ Beta(alpha, alpha) is corrected to the exact area, and mixes the targets.
    """

    classes: int
    alpha: float

    def __post_init__(self) -> None:
        _positive(cutmix=self.alpha, classes=self.classes)

    def __call__(self, batch: Labelled, clock: Clock) -> Labelled:
        """Return the batch with mixed images and targets (N, C)."""
        return MixupCutMix(classes=self.classes, cutmix=self.alpha, switch=1.0)(batch, clock)
