"""The long-tailed digits of this package: 1,797 real 8x8 images.

The data is the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C.
Kaynak (UCI Machine Learning Repository, https://doi.org/10.24432/C50P49), licensed CC BY 4.0, as
distributed with scikit-learn; its 17 grey levels are scaled to 0..255.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from importlib.resources import files

import numpy as np
import torch

from longtail.data.images.stores import ArrayImages
from longtail.data.request import Profile
from longtail.data.source import Rows, Source
from longtail.data.splits import rank_groups, tail_counts, tail_rows

TEST = 50  # test images per class
LARGEST = 120  # training images of the largest class: every class has 174 or more


def digits(*, imbalance: float | None = None, profile: Profile = "exp") -> Source:
    """Digits with 120 training images of class 0 down to 6 of class 9 (imbalance 20).

    The test set is balanced and has 500 images.
    """
    with (files("longtail.data") / "digits.npz").open("rb") as stream, np.load(stream) as stored:
        grey, target = stored["image"], stored["target"].astype(np.int64)
    pixels = np.ascontiguousarray(np.repeat(grey[:, None], 3, axis=1))
    test = tail_rows(target, [TEST] * 10)
    rest = np.setdiff1d(np.arange(len(target)), test)
    train = rest[
        tail_rows(
            target[rest],
            tail_counts(
                LARGEST, 10, imbalance=20 if imbalance is None else imbalance, profile=profile
            ),
        )
    ]
    splits = {
        name: Rows(
            ArrayImages(torch.from_numpy(pixels[rows])),
            target[rows],
            tuple(f"digits/{row}" for row in rows.tolist()),
            tuple(sha256(pixels[row].tobytes()).digest() for row in rows.tolist()),
        )
        for name, rows in {"train": train, "test": test}.items()
    }
    return Source(
        "digits-lt",
        tuple("0123456789"),
        splits,
        partial(rank_groups, cuts=(3, 4, 3)),
        size=8,
        mirror=False,
    )
