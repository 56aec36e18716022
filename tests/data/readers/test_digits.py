import numpy as np

from longtail.data.images.stores import ArrayImages
from longtail.data.open import open_data
from longtail.data.readers.digits import digits


def test_the_test_set_is_balanced_and_always_the_same() -> None:
    mild, steep = digits(imbalance=2), digits(imbalance=40, profile="step")
    assert np.bincount(mild.splits["test"].target).tolist() == [50] * 10
    assert mild.splits["test"].ids == steep.splits["test"].ids
    assert not set(mild.splits["train"].ids) & set(mild.splits["test"].ids)
    assert (
        open_data("digits-lt", split_seed=3).test.ids
        == open_data("digits-lt", protocol="paper").test.ids
    )


def test_the_cut_is_long_tailed() -> None:
    data = open_data("digits-lt")
    assert data.source_counts.tolist() == [120, 86, 61, 44, 31, 22, 16, 11, 8, 6]
    assert data.groups.members == {"many": (0, 1, 2), "medium": (3, 4, 5, 6), "few": (7, 8, 9)}
    assert (data.size, data.caveats, data.warnings) == (8, (), ())
    assert open_data("digits-lt", protocol="paper").counts.tolist() == data.source_counts.tolist()


def test_the_pixels_are_digits() -> None:
    data = open_data("digits-lt")
    assert isinstance(data.train.inputs, ArrayImages)
    pixels = data.train.inputs.pixels
    assert pixels.shape[1:] == (3, 8, 8)
    assert (int(pixels.min()), int(pixels.max())) == (0, 255)
    # a zero has a hole, a one has none
    centre = pixels[:, 0, 3:5, 3:5].float().mean((1, 2))
    assert centre[data.train.target == 0].mean() < 60 < 150 < centre[data.train.target == 1].mean()
