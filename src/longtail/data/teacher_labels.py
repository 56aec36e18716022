"""Labels of a teacher for the augmented and mixed images of a student, as batch transforms.

`AddTeacherLabels` runs the teacher and adds its most probable classes (`HardLabels`) or the
probabilities of all classes (`SoftLabels`). `longtail.data.label_cache` runs it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.core import BatchTransform, Clock
from longtail.errors import LongtailError


@dataclass(frozen=True)
class Compose:
    """Two batch transforms, one after the other."""

    first: BatchTransform
    then: BatchTransform

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """Return the batch after both transforms."""
        return self.then(self.first(batch, clock), clock)


@dataclass(frozen=True)
class SplitViews:
    """Give the first of two views (`TwoViews`) to the student and the second to the teacher."""

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """Return the batch with `image` and `teacher_image` instead of the views."""
        rest = {name: value for name, value in batch.items() if name not in ("view1", "view2")}
        return {"image": batch["view1"], "teacher_image": batch["view2"], **rest}


class Labels(Protocol):
    """What of a teacher's prediction is learnt, and how it is stored."""

    def __call__(self, logits: Tensor) -> Tensor:
        """Turn logits (N, C) into labels, exactly as `decode` returns them after `encode`."""

    def dtype(self, classes: int) -> np.dtype[Any]:
        """The type of a stored label; of an unknown one all bytes are zero."""

    def encode(self, target: Tensor) -> NDArray[Any]:
        """Turn labels into an array of this type."""

    def decode(self, stored: NDArray[Any], classes: int) -> Tensor | None:
        """Turn an array of this type into labels, or None unless all are known."""


@dataclass(frozen=True)
class HardLabels:
    """The most probable class of each image (N,).

    A stored label takes one byte, or two from 255 classes on: the class + 1.

    >>> HardLabels()(torch.tensor([[0.0, 1.0], [3.0, 1.0]])).tolist()
    [1, 0]
    """

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.argmax(1)

    def dtype(self, classes: int) -> np.dtype[Any]:
        return np.dtype(np.uint8 if classes < 255 else np.uint16)

    def encode(self, target: Tensor) -> NDArray[Any]:
        stored: NDArray[Any] = target.cpu().numpy() + 1
        return stored

    def decode(self, stored: NDArray[Any], classes: int) -> Tensor | None:
        stored = stored.astype(np.int64)
        if not stored.all() or stored.max(initial=0) > classes:
            return None
        return torch.from_numpy(stored - 1)


DEFAULT_LABELS = HardLabels()


@dataclass(frozen=True)
class SoftLabels:
    """The probability of each class (N, C), rounded to half precision.

    A stored label takes two bytes for each class.

    >>> SoftLabels()(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    tensor([[0.5000, 0.5000],
            [0.7310, 0.2690]])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.float().softmax(1).half().float()

    def dtype(self, classes: int) -> np.dtype[Any]:
        return np.dtype((np.float16, (classes,)))

    def encode(self, target: Tensor) -> NDArray[Any]:
        stored: NDArray[Any] = target.cpu().half().numpy()
        return stored

    def decode(self, stored: NDArray[Any], classes: int) -> Tensor | None:
        target = torch.from_numpy(stored).float()
        total = target.sum(1)  # of a probability below a half's smallest number nothing is left
        return target if bool(((total > 0.9) & (total < 1.1)).all()) else None


@dataclass(frozen=True)
class AddTeacherLabels:
    """Adds `teacher_target`, by default the teacher's most probable class for each image (N,).

    The teacher is any function from images in [0, 1] (N, 3, H, W) to logits (N, C) that never
    trains, such as `longtail.nn.Teacher`, which also resizes images. Its input is `teacher_image`
    if the batch has one (see `SplitViews`), else the augmented and mixed `image`.

    >>> image = torch.tensor([[[[0.0, 1.0]]], [[[0.5, 0.0]]]])
    >>> add_labels = AddTeacherLabels(lambda image: image[:, 0, 0])
    >>> add_labels({"image": image}, Clock(0, 1, 0, 1))["teacher_target"].tolist()
    [1, 0]
    """

    teacher: Callable[[Tensor], Tensor]
    labels: Labels = DEFAULT_LABELS

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """Return the batch with `teacher_target`."""
        if isinstance(self.teacher, nn.Module) and any(
            module.training for module in self.teacher.modules()
        ):
            raise LongtailError(
                "the teacher is in train mode: wrap it in longtail.nn.Teacher, which keeps it in"
                " eval mode"
            )
        with torch.no_grad():
            target = self.labels(self.teacher(batch.get("teacher_image", batch["image"])))
        return {**without_teacher_image(batch), "teacher_target": target}


def without_teacher_image(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch without the image that only the teacher gets."""
    return {name: value for name, value in batch.items() if name != "teacher_image"}
