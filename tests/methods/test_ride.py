import math

import pytest
import torch
from torch import Tensor, nn

from longtail.core import Clock, Labelled
from longtail.losses import LDAM, Diversity, class_balanced_weights, expert_temperature
from longtail.methods import Ride
from longtail.nn import BatchFormer, CosineExperts, Frozen, Network, Streams, Teacher, build
from longtail.schedules import Deferred

COUNTS = [40, 8, 2]


def network(experts: int = 3) -> Network:
    torch.manual_seed(0)
    return build({"name": "fast_cnn_experts", "size": 8, "width": 8, "experts": experts})


def ride(*, neck: Streams | None = None, teacher: Frozen | None = None) -> Ride:
    """As the recipe makes it."""
    counts, body = torch.tensor(COUNTS), network()
    return Ride(
        body,
        CosineExperts(body.dim, 3),
        LDAM(counts, max_margin=15.0, scale=1.0),
        diversity=Diversity(-0.45),
        neck=neck,
        weights=Deferred(class_balanced_weights(counts), 0.8),
        temperature=Deferred(expert_temperature(counts), 0.8),
        teacher=teacher,
    )


def batch() -> Labelled:
    torch.manual_seed(1)
    return {
        "image": torch.rand(6, 3, 8, 8),
        "target": torch.tensor([0, 0, 0, 1, 1, 2]),
        "position": torch.arange(6),
    }


def softmax(row: list[float], temperature: list[float]) -> list[float]:
    top = max(z / t for z, t in zip(row, temperature, strict=True))
    parts = [math.exp(z / t - top) for z, t in zip(row, temperature, strict=True)]
    return [part / sum(parts) for part in parts]


def slow_ride(logits: Tensor, target: list[int], *, late: bool) -> float:
    """The published loss, expert by expert and row by row."""
    margins = [0.5 * (n / min(COUNTS)) ** -0.25 for n in COUNTS]
    raw = [(1 - 0.9999) / (1 - 0.9999**n) for n in COUNTS]
    weights = [3 * w / sum(raw) for w in raw] if late else [1.0] * 3
    heat = [3 * n / sum(COUNTS) * 0.05 + 1 - 0.05 for n in COUNTS]
    temperature = [h / max(heat) for h in heat] if late else [1.0] * 3
    total = 0.0
    for expert in logits.tolist():
        above = below = 0.0
        for row, y in zip(expert, target, strict=True):
            margined = [z - 30 * margins[c] if c == y else z for c, z in enumerate(row)]
            above -= weights[y] * math.log(softmax(margined, [1.0] * 3)[y])
            below += weights[y]
        total += above / below
        for i, row in enumerate(expert):
            mean = [float(logits[:, i, c].mean()) for c in range(3)]
            p, q = softmax(mean, temperature), softmax(row, temperature)
            divergence = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
            total += -0.45 * (sum(temperature) / 3) ** 2 * divergence / len(expert)
    return total


@pytest.mark.parametrize("step", [0, 9])
def test_the_loss_is_the_published_one(step: int) -> None:
    method, given = ride().double(), batch()
    given["image"] = given["image"].double()
    logits = method.head.apart(method.network(given["image"]))
    assert logits.abs().max() <= 30
    outcome = method(given, Clock(step, 10, 0, 1))
    assert outcome.loss.item() == pytest.approx(
        slow_ride(logits.detach(), given["target"].tolist(), late=step == 9), rel=1e-5
    )
    assert list(outcome.terms) == ["class", "class_diversity"]
    assert outcome.terms["class_diversity"] < 0


@pytest.mark.parametrize(
    ("plain_weight", "batchformer_weight"), [(0.5, 0.5), (1.0, 1.0), (0.0, 1.0)]
)
def test_each_stream_has_the_complete_loss_and_experts_share_one_batchformer(
    plain_weight: float, batchformer_weight: float
) -> None:
    neck = Streams(
        BatchFormer(24, heads=1, dropout=0.0),
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
    )
    method, given = ride(neck=neck), batch()
    outcome = method(given, Clock(0, 10, 0, 1))
    parts = method.network(given["image"]).chunk(3, 1)
    streams = {"plain": parts, "attended": [neck.batchformer.attend(rows) for rows in parts]}
    for (name, rows), factor in zip(
        streams.items(), (plain_weight, batchformer_weight), strict=True
    ):
        logits = torch.stack(
            [head(features) for head, features in zip(method.head.parts, rows, strict=True)]
        )
        if factor:
            term = outcome.terms[name] + outcome.terms[f"{name}_diversity"]
            assert term.item() == pytest.approx(
                factor * slow_ride(logits.detach(), given["target"].tolist(), late=False), rel=1e-4
            )
        else:
            assert name in outcome.notes
            assert name not in outcome.terms


def test_a_teacher_adds_its_divergence_from_the_mean() -> None:
    torch.manual_seed(5)
    wise = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    method, given = ride(teacher=Teacher(wise, size=8)), batch()
    outcome = method(given, Clock(0, 10, 0, 1))
    p, q = wise(given["image"]).log_softmax(1), method.predict(given["image"]).log_softmax(1)
    expected = (p.exp() * (p - q)).sum(1).mean()
    assert outcome.terms["class_distill"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_every_expert_can_be_evaluated() -> None:
    method, image = ride().eval(), batch()["image"]
    with torch.no_grad():
        predictions = method.heads(image)
        assert list(predictions) == ["logits", "expert1", "expert2", "expert3"]
        assert torch.equal(predictions["logits"], method.predict(image))
        assert torch.allclose(
            predictions["logits"],
            torch.stack([predictions[f"expert{k}"] for k in (1, 2, 3)]).mean(0),
        )


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="72 features, but the head expects 24"):
        Ride(network(), CosineExperts(24, 3), LDAM(torch.tensor(COUNTS)), diversity=Diversity())
    with pytest.raises(ValueError, match="got BatchFormer: wrap it in Streams"):
        ride(neck=BatchFormer(24))  # type: ignore[arg-type]
