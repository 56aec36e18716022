import numpy as np
import pytest
import torch

from longtail.data.dataset import Split
from longtail.data.images.stores import ArrayImages
from longtail.data.open import open_data
from longtail.errors import LongtailError


def split() -> Split:
    pixels = torch.arange(4 * 3 * 2 * 2).reshape(4, 3, 2, 2).to(torch.uint8)
    box = torch.arange(8.0).reshape(4, 2)
    columns = {"domain": torch.tensor([0, 1, 0, 1]), "box": box}
    return Split(ArrayImages(pixels), torch.arange(4), tuple("abcd"), 0.8, columns)


def test_taken_rows_keep_everything_that_is_known_of_them() -> None:
    full, part = split(), split().take(np.array([2, 0]))
    assert (part.ids, part.target.tolist(), part.crop) == (("c", "a"), [2, 0], 0.8)
    assert part.inputs.image(1).tobytes() == full.inputs.image(0).tobytes()
    assert torch.equal(part.columns["box"], full.columns["box"][[2, 0]])
    assert len(full.take(np.arange(0))) == 0


def test_splits_whose_parts_do_not_fit_are_refused() -> None:
    good = split()
    with pytest.raises(LongtailError, match="must have equal lengths, got 4, 4 and 3"):
        Split(good.inputs, good.target, tuple("abc"))
    with pytest.raises(LongtailError, match="'domain' must have a value for each of 4 rows, got 3"):
        Split(good.inputs, good.target, good.ids, columns={"domain": torch.zeros(3)})


def test_the_old_name_of_the_inputs_warns() -> None:
    good = split()
    with pytest.warns(DeprecationWarning, match=r"Split\.pictures is now Split\.inputs"):
        assert good.pictures is good.inputs


def test_native_resolution_gives_back_the_pixels_of_the_source() -> None:
    small, large = open_data("digits-lt"), open_data("digits-lt", size=12)
    assert not large.has_vectors
    repeated = large.at_native_resolution()
    assert (large.size, repeated.size) == (12, 8)
    assert repeated.test.inputs.image(3).tobytes() == small.test.inputs.image(3).tobytes()


def test_splits_are_evaluated_where_they_have_rows() -> None:
    data = open_data("digits-lt")
    assert {name: len(split) for name, split in data.evaluated.items()} == {"val": 41, "test": 500}
    assert [*open_data("digits-lt", protocol="paper").evaluated] == ["test"]
