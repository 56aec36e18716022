"""A teacher labels the images that its student sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toys import Brightest, labelled_batch

from longtail.core import Clock
from longtail.data import teacher_labels
from longtail.data.mixing import MixupCutMix

CLOCK = Clock(0, 4, 0, 2)


def test_the_teacher_sees_the_image_as_it_is_after_mixing() -> None:
    teacher, given = Brightest(), labelled_batch(64)
    mix = MixupCutMix(classes=3)
    np.random.seed(0)  # noqa: NPY002
    mixed = mix(given, CLOCK)  # type: ignore[arg-type]
    np.random.seed(0)  # noqa: NPY002
    taught = teacher_labels.Compose(mix, teacher_labels.AddTeacherLabels(teacher))(given, CLOCK)
    assert torch.equal(taught["image"], mixed["image"])
    assert not torch.equal(taught["teacher_target"], given["image"].mean((2, 3)).argmax(1))
    assert torch.equal(taught["teacher_target"], mixed["image"].mean((2, 3)).argmax(1))
    assert "teacher_target" not in given


def test_in_distribution_the_teacher_sees_its_view() -> None:
    given = labelled_batch()
    views = {
        "view1": given["image"],
        "view2": given["image"].flip(1),
        "target": given["target"],
        "position": given["position"],
    }
    mix = teacher_labels.Compose(
        teacher_labels.SplitViews(), teacher_labels.AddTeacherLabels(Brightest())
    )
    taught = mix(views, CLOCK)
    assert torch.equal(taught["image"], given["image"])
    assert torch.equal(taught["teacher_target"], given["image"].flip(1).mean((2, 3)).argmax(1))
    assert set(taught) == {"image", "target", "position", "teacher_target"}


def test_a_teacher_in_train_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="the teacher is in train mode"):
        teacher_labels.AddTeacherLabels(Brightest().train())(labelled_batch(), CLOCK)
