from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.core import Clock
from longtail.losses import CrossEntropy, class_balanced_weights
from longtail.methods import DistillTokens
from longtail.methods.distill_tokens import Release
from longtail.nn import Network, TokenHeads, build
from longtail.schedules import Deferred

COUNTS = torch.tensor([40, 9, 2])
EARLY, LATE = Clock(0, 10, 0, 1), Clock(9, 10, 0, 1)


def network(**more: Any) -> Network:
    return build(
        {
            "name": "vit_mini",
            "size": 8,
            "patch": 4,
            "width": 16,
            "depth": 1,
            "pool": "tokens",
            **more,
        }
    )


def method(**more: Any) -> DistillTokens:
    torch.manual_seed(0)
    body = network()
    return DistillTokens(body, TokenHeads(body.dim, 3), CrossEntropy(smoothing=0.1), **more)


def batch() -> Any:
    torch.manual_seed(1)
    image, target = torch.rand(5, 3, 8, 8), torch.tensor([0, 0, 0, 1, 2])
    return {
        "image": image,
        "target": target,
        "teacher_target": torch.tensor([0, 1, 2, 1, 1]),
        "position": torch.arange(5),
    }


def test_half_the_labels_and_half_the_teacher() -> None:
    student, given = method(), batch()
    outcome = student(given, EARLY)
    features = student.network(given["image"])
    cls, dist = student.head.cls(features[:, :16]), student.head.dist(features[:, 16:])
    assert torch.allclose(
        outcome.terms["cls"], F.cross_entropy(cls, given["target"], label_smoothing=0.1) / 2
    )
    assert torch.allclose(outcome.terms["dist"], F.cross_entropy(dist, given["teacher_target"]) / 2)
    assert torch.allclose(
        outcome.notes["distance"],
        1 - F.cosine_similarity(features[:, :16], features[:, 16:]).mean(),
        atol=1e-6,
    )
    assert outcome.notes["agreement"].item() == pytest.approx(2 / 5)
    assert outcome.notes["follows"].item() == pytest.approx(
        (dist.argmax(1) == given["teacher_target"]).float().mean().item()
    )


def test_late_the_teachers_class_weighs_and_not_the_label() -> None:
    weights = class_balanced_weights(COUNTS)
    student, given = method(weights=Deferred(weights, 0.5)), batch()
    dist = student.head.named(student.network(given["image"]))["dist"]
    assert torch.allclose(
        student(given, EARLY).terms["dist"], F.cross_entropy(dist, given["teacher_target"]) / 2
    )
    late = student(given, LATE).terms["dist"]
    assert torch.allclose(late, F.cross_entropy(dist, given["teacher_target"], weight=weights) / 2)
    # By hand: the weighted mean of -log p, weighted by the class that the teacher named.
    losses = torch.stack(
        [-dist[i].log_softmax(0)[t] for i, t in enumerate(given["teacher_target"])]
    )
    chosen = weights[given["teacher_target"]]
    assert torch.allclose(late, (chosen * losses).sum() / chosen.sum() / 2)


def test_the_teachers_probabilities_can_be_learnt() -> None:
    student, given = method(weights=Deferred(class_balanced_weights(COUNTS), 0.5)), batch()
    given["teacher_target"] = torch.rand(5, 3).softmax(1)
    dist = student.head.named(student.network(given["image"]))["dist"]
    losses = -(given["teacher_target"] * dist.log_softmax(1))
    outcome = student(given, EARLY)
    assert torch.allclose(outcome.terms["dist"], losses.sum(1).mean() / 2)
    weights = class_balanced_weights(COUNTS)  # of each class's share
    total = (weights * given["teacher_target"]).sum()
    assert torch.allclose(student(given, LATE).terms["dist"], (weights * losses).sum() / total / 2)
    named = given["teacher_target"].argmax(1)
    assert outcome.notes["agreement"] == (named == given["target"]).float().mean()
    assert outcome.notes["follows"] == (named == dist.argmax(1)).float().mean()


def test_mixed_targets_count_for_their_largest_class() -> None:
    given = batch()
    given["target"] = 0.6 * F.one_hot(given["target"], 3) + 0.4 * F.one_hot(
        torch.tensor([2, 2, 2, 2, 0]), 3
    )
    outcome = method()(given, EARLY)
    assert outcome.notes["agreement"].item() == pytest.approx(2 / 5)
    assert outcome.loss.isfinite()


def test_trust_moves_from_the_teacher_to_the_labels() -> None:
    student, given = method(trust=Release(0.0, 1.0)), batch()
    dist = student.head.named(student.network(given["image"]))["dist"]
    teacher, labels = (
        F.cross_entropy(dist, given["teacher_target"]),
        F.cross_entropy(dist, given["target"]),
    )
    assert torch.allclose(student(given, EARLY).terms["dist"], teacher / 2)
    assert torch.allclose(
        student(given, Clock(6, 8, 0, 1)).terms["dist"], (0.25 * teacher + 0.75 * labels) / 2
    )
    assert torch.allclose(method(trust=Release(0.0, 0.5))(given, LATE).terms["dist"], labels / 2)


@pytest.mark.parametrize(("start", "end"), [(-0.1, 1.0), (0.5, 0.5), (0.5, 1.1), (0.9, 0.1)])
def test_a_release_outside_of_training_is_refused(start: float, end: float) -> None:
    with pytest.raises(ValueError, match=f"got start {start} and end {end}"):
        Release(start, end)


def test_the_answer_is_the_mean_of_both_heads() -> None:
    student, image = method().eval(), batch()["image"]
    heads = student.heads(image)
    assert list(heads) == ["logits", "cls", "dist"]
    assert torch.allclose(heads["logits"], (heads["cls"] + heads["dist"]) / 2, atol=1e-6)
    assert torch.equal(heads["logits"], student.predict(image))


def test_what_does_not_fit_is_refused() -> None:
    plain = network(pool="token")
    with pytest.raises(
        ValueError,
        match="vit_mini has no distillation token: build the network with pool='tokens'",
    ):
        DistillTokens(plain, TokenHeads(plain.dim, 3), CrossEntropy())
    with pytest.raises(ValueError, match="32 features, but the head expects 16"):
        DistillTokens(network(), TokenHeads(16, 3), CrossEntropy())
    given = batch()
    del given["teacher_target"]
    with pytest.raises(ValueError, match="the batch has no teacher_target"):
        method()(given, EARLY)
