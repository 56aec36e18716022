import tracemalloc

import pytest

from longtail.data.source import numbered_targets


def test_numbers_become_names() -> None:
    classes, targets = numbered_targets({"train": [1, 0, 2], "test": [3]}, None, where="x")
    assert classes == ("0", "1", "2", "3")
    assert {split: target.tolist() for split, target in targets.items()} == {
        "train": [1, 0, 2],
        "test": [3],
    }
    assert numbered_targets({"train": [1, 0]}, ("cat", "dog"), where="x")[0] == ("cat", "dog")


@pytest.mark.parametrize("labels", [[20_000_000, 1], [10**20, 10**21, 10**20], [0, 1, 1000]])
def test_ids_are_names_of_classes(labels: list[int]) -> None:
    tracemalloc.start()
    classes, targets = numbered_targets({"train": labels}, None, where="x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [int(classes[target]) for target in targets["train"]] == labels
    assert len(classes) == len({*labels})
    assert peak < 1_000_000, "a table of all numbers takes gigabytes"


def test_gaps_are_listed_without_a_table() -> None:
    labels = [*range(100_000), 900_000]
    tracemalloc.start()
    with pytest.raises(
        ValueError, match="label 100000, 100001, 100002, 100003, 100004 and 799,995 more"
    ):
        numbered_targets({"train": labels}, None, where="x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


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
        numbered_targets({"train": labels}, names, where="x")
