import pytest
import torch
import torch.nn.functional as F

from longtail.losses import LDAM

COUNTS = torch.tensor([100, 30, 7, 2])


def test_margins_follow_the_fourth_root() -> None:
    assert LDAM(torch.tensor([81 * 5, 16 * 5, 5]), max_margin=0.6).margin.tolist() == pytest.approx(
        [0.2, 0.3, 0.6]
    )


def test_hard_targets_are_the_published_formula() -> None:
    logits, target = torch.rand(6, 4) * 2 - 1, torch.tensor([0, 1, 2, 3, 0, 0])
    loss = LDAM(COUNTS)
    published = F.cross_entropy(30 * (logits - F.one_hot(target, 4) * loss.margin), target)
    assert torch.allclose(loss(logits, target), published)


def test_a_soft_target_is_the_mean_of_its_classes() -> None:
    logits, loss = torch.rand(1, 4) * 2 - 1, LDAM(COUNTS)
    mixed = 0.3 * loss(logits, torch.tensor([1])) + 0.7 * loss(logits, torch.tensor([3]))
    assert torch.allclose(loss(logits, torch.tensor([[0.0, 0.3, 0.0, 0.7]])), mixed)


def test_confident_predictions_keep_their_digits() -> None:
    logits = torch.tensor([[1.0, -1.0, -1.0, -1.0]])
    wide = LDAM(COUNTS)(logits.double(), torch.tensor([0])).item()
    assert 0 < wide < 1e-15
    assert LDAM(COUNTS)(logits, torch.tensor([0])).item() == pytest.approx(wide, rel=1e-3)


def test_gradients_are_finite_and_right() -> None:
    logits = torch.tensor(
        [[0.5, 0.5, -1.0], [1.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True
    )
    loss, target = (
        LDAM(torch.tensor([9, 3, 1])).double(),
        torch.tensor([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64),
    )
    assert torch.autograd.gradcheck(lambda z: loss(z, target), (logits,))
    certain = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(certain, torch.tensor([1])), certain)
    assert gradient.isfinite().all()
