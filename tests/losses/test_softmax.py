import torch
import torch.nn.functional as F

from longtail.losses import BalancedSoftmax, CrossEntropy, LogitAdjusted

COUNTS = torch.tensor([100, 30, 7, 2])


def test_hard_targets_are_torchs_cross_entropy() -> None:
    logits, target, weight = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 0]), torch.rand(4)
    assert torch.allclose(CrossEntropy()(logits, target), F.cross_entropy(logits, target))
    assert torch.allclose(
        CrossEntropy()(logits, target, weight=weight), F.cross_entropy(logits, target, weight)
    )
    assert torch.allclose(
        CrossEntropy(smoothing=0.1)(logits, target),
        F.cross_entropy(logits, target, label_smoothing=0.1),
    )


def test_log_counts_and_log_prior_are_the_same_loss() -> None:
    logits, target = torch.randn(6, 4, requires_grad=True), torch.tensor([0, 1, 2, 3, 0, 0])
    ours = LogitAdjusted(COUNTS)(logits, target)
    published = F.cross_entropy(logits + COUNTS.log(), target)
    assert torch.allclose(ours, published)
    assert torch.allclose(
        torch.autograd.grad(ours, logits)[0], torch.autograd.grad(published, logits)[0]
    )


def test_both_names_are_one_class() -> None:
    assert BalancedSoftmax is LogitAdjusted


def test_tau_scales_the_bias() -> None:
    assert torch.allclose(LogitAdjusted(COUNTS, tau=2.0).bias, 2 * (COUNTS / COUNTS.sum()).log())
    logits, target = torch.randn(3, 4), torch.tensor([0, 1, 2])
    assert torch.allclose(
        LogitAdjusted(COUNTS, tau=0.0)(logits, target), CrossEntropy()(logits, target)
    )


def test_the_bias_moves_with_the_module_and_is_not_saved() -> None:
    loss = LogitAdjusted(COUNTS).double()
    assert loss.bias.dtype == torch.float64
    assert not loss.state_dict()
