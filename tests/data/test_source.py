import numpy as np
import pytest

from longtail.data.source import numbered_classes


def test_numbers_become_names() -> None:
    assert numbered_classes(
        {"train": np.array([1, 0, 2]), "test": np.array([3])}, None, where="x"
    ) == ("0", "1", "2", "3")
    assert numbered_classes({"train": np.array([1, 0])}, ("cat", "dog"), where="x") == (
        "cat",
        "dog",
    )


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, -1], None, r"x: expected labels of 0 or more, got -1"),
        ([0, 2, 4], None, r"without gaps, got no image of label 1, 3"),
        ([1, 2], None, r"without gaps, got no image of label 0"),
        ([0, 2], ("cat", "dog"), r"expected labels 0 to 1 \(2 classes are named\), got 2"),
    ],
)
def test_labels_out_of_range_or_with_gaps_are_refused(
    labels: list[int], names: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        numbered_classes({"train": np.array(labels)}, names, where="x")
