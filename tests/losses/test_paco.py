import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses import LogitAdjusted, ParametricContrastive

COUNTS = [40, 8, 2]
SETTINGS = [
    {"alpha": 0.01, "temperature": 0.05},
    {"alpha": 0.05, "beta": 2.0, "gamma": 0.5, "temperature": 0.2, "centre_temperature": 1.5},
    {"alpha": 0.3, "gamma": 0.0, "temperature": 1.0},
]


def given() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Logits, target, anchors, others, labels."""
    torch.manual_seed(0)
    anchors, others = (
        F.normalize(torch.randn(4, 5).double(), dim=1),
        F.normalize(torch.randn(7, 5).double(), dim=1),
    )
    return (
        torch.randn(4, 3).double(),
        torch.tensor([0, 0, 1, 2]),
        anchors,
        others,
        torch.tensor([0, 0, 1, 2, 1, -1, 0]),
    )


def slow(
    logits: Tensor,
    target: Tensor,
    anchors: Tensor,
    others: Tensor,
    labels: Tensor,
    *,
    alpha: float,
    temperature: float,
    beta: float = 1.0,
    gamma: float = 1.0,
    centre_temperature: float = 1.0,
) -> float:
    features, classes = [*anchors, *others], [*target.tolist(), *labels.tolist()]
    total = 0.0
    for i in range(len(anchors)):
        centres = [
            (float(z) + math.log(n / sum(COUNTS))) / centre_temperature
            for z, n in zip(logits[i], COUNTS, strict=True)
        ]
        near = {
            j: float(anchors[i] @ other) / temperature for j, other in enumerate(features) if j != i
        }
        below = math.log(sum(map(math.exp, centres)) + gamma * sum(map(math.exp, near.values())))
        positives = [(beta, centres[int(target[i])])] + [
            (alpha, near[j]) for j in near if classes[j] == target[i]
        ]
        total -= sum(weight * (value - below) for weight, value in positives) / sum(
            weight for weight, _ in positives
        )
    return total / len(anchors)


@pytest.mark.parametrize("settings", SETTINGS)
def test_it_equals_a_slow_reference(settings: dict[str, float]) -> None:
    logits, target, anchors, others, labels = given()
    loss = ParametricContrastive(torch.tensor(COUNTS), **settings).double()
    value = loss(logits, target, anchors=anchors, others=others, labels=labels)
    assert value.item() == pytest.approx(
        slow(logits, target, anchors, others, labels, **settings), rel=1e-6
    )


def test_labels_may_come_as_floats_from_a_queue() -> None:
    logits, target, anchors, others, labels = given()
    loss = ParametricContrastive(torch.tensor(COUNTS))
    assert torch.equal(
        loss(logits, target, anchors=anchors, others=others, labels=labels),
        loss(logits, target, anchors=anchors, others=others, labels=labels.double()),
    )


def test_without_contrast_it_is_balanced_softmax() -> None:
    logits, target, anchors, others, labels = given()
    loss = ParametricContrastive(torch.tensor(COUNTS), alpha=0.0, gamma=0.0)
    value = loss(logits, target, anchors=anchors, others=others, labels=labels)
    assert torch.allclose(value, LogitAdjusted(torch.tensor(COUNTS))(logits, target))


def test_an_anchor_is_not_contrasted_with_itself() -> None:
    logits, target, anchors, others, labels = given()
    loss = ParametricContrastive(torch.tensor(COUNTS))
    alone = loss.per_sample(
        logits[:1], target[:1], anchors=anchors[:1], others=others, labels=labels
    )
    # Only its own cosine grows
    doubled = loss.per_sample(
        logits[:1], target[:1], anchors=3 * anchors[:1], others=others / 3, labels=labels
    )
    assert torch.allclose(alone, doubled)


def test_gradients_are_right_and_finite_at_low_temperature() -> None:
    logits, target, anchors, others, labels = given()
    loss = ParametricContrastive(torch.tensor(COUNTS), alpha=0.2, temperature=0.5).double()
    assert torch.autograd.gradcheck(
        lambda z, a, o: loss(z, target, anchors=a, others=o, labels=labels),
        (logits.requires_grad_(), anchors.requires_grad_(), others.requires_grad_()),
    )
    cold = ParametricContrastive(torch.tensor(COUNTS), temperature=1e-3)
    half = anchors.detach().half().requires_grad_()
    value = cold(logits.half(), target, anchors=half, others=others.half(), labels=labels)
    (gradient,) = torch.autograd.grad(value, half)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_bad_input_is_refused() -> None:
    logits, target, anchors, others, labels = given()
    with pytest.raises(ValueError, match="the same length, got 4, 4, 4, and 7, 6"):
        ParametricContrastive(torch.tensor(COUNTS))(
            logits, target, anchors=anchors, others=others, labels=labels[1:]
        )
    with pytest.raises(
        ValueError,
        match=r"expected logits \(N, 3\), as the loss was given counts of 3 classes, got \(4, 1\)",
    ):
        ParametricContrastive(torch.tensor(COUNTS))(
            logits[:, :1], target, anchors=anchors, others=others, labels=labels
        )
    with pytest.raises(ValueError, match="temperatures must be positive"):
        ParametricContrastive(torch.tensor(COUNTS), temperature=0.0)
    with pytest.raises(ValueError, match="beta positive"):
        ParametricContrastive(torch.tensor(COUNTS), beta=0.0)


def test_cosines_are_not_rounded_under_autocast() -> None:
    logits, target, anchors, others, labels = (
        tensor.float() if tensor.is_floating_point() else tensor for tensor in given()
    )
    loss = ParametricContrastive(torch.tensor(COUNTS))
    plain = loss(logits, target, anchors=anchors, others=others, labels=labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(
            loss(logits, target, anchors=anchors, others=others, labels=labels), plain
        )
