import pytest
import torch

from longtail.losses import class_balanced_weights


def test_the_published_formula_by_loops() -> None:
    counts, beta = [5000, 997, 50], 0.9999
    raw = [(1 - beta) / (1 - beta**n) for n in counts]
    expected = [3 * w / sum(raw) for w in raw]
    assert class_balanced_weights(torch.tensor(counts), beta).tolist() == pytest.approx(expected)


def test_they_sum_to_the_number_of_classes_and_favour_the_rare() -> None:
    weights = class_balanced_weights(torch.tensor([1000, 100, 10, 1]))
    assert weights.sum().item() == pytest.approx(4)
    assert weights.tolist() == sorted(weights.tolist())


def test_beta_zero_weights_all_alike() -> None:
    assert class_balanced_weights(torch.tensor([10, 1]), 0.0).tolist() == [1.0, 1.0]


def test_cifar10_lt_spans_a_factor_of_79() -> None:
    weights = class_balanced_weights(
        torch.tensor([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50])
    )
    assert (weights.max() / weights.min()).item() == pytest.approx(79, abs=0.5)


@pytest.mark.parametrize(
    ("counts", "beta", "message"),
    [([3, 0], 0.9, "none in class 1"), ([3, 1], 1.0, r"beta in \[0, 1\)")],
)
def test_bad_input_is_refused(counts: list[int], beta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_balanced_weights(torch.tensor(counts), beta)
