import copy

import pytest
import torch
import torch.nn.functional as F

from longtail.core import Clock, LabelledViews
from longtail.losses import ParametricContrastive
from longtail.methods import PaCo
from longtail.nn import BatchFormer, Linear, Streams, build

COUNTS = torch.tensor([40, 8, 2])
CLOCK = Clock(0, 10, 0, 1)


def paco(*, neck: Streams | None = None, size: int = 16, momentum: float = 0.9) -> PaCo:
    torch.manual_seed(0)
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    return PaCo(
        network,
        Linear(network.dim, 3),
        ParametricContrastive(COUNTS),
        dim=8,
        size=size,
        momentum=momentum,
        neck=neck,
    )


def batch() -> LabelledViews:
    torch.manual_seed(1)
    views = torch.rand(2, 6, 3, 8, 8)
    return {
        "view1": views[0],
        "view2": views[1],
        "target": torch.tensor([0, 0, 0, 1, 1, 2]),
        "position": torch.arange(6),
    }


def test_the_loss_contrasts_first_views_with_second_ones_and_the_queue() -> None:
    method, given = paco(), batch()
    method.after_step(method(given, CLOCK), CLOCK)
    outcome = method(given, CLOCK)
    features = method.query.network(given["view1"])
    keys = F.normalize(method.key.projector(method.key.network(given["view2"])), dim=1)
    loss = method.loss(
        method.head(features),
        given["target"],
        anchors=F.normalize(method.query.projector(features), dim=1),
        others=torch.cat([keys, method.queue.stored]),
        labels=torch.cat([given["target"], method.labels.stored[:, 0].long()]),
    )
    assert torch.allclose(outcome.loss, loss)
    assert torch.allclose(outcome.carry["keys"], keys)
    assert not outcome.carry["keys"].requires_grad


def test_keys_and_labels_are_queued_after_the_step_only() -> None:
    method, given = paco(), batch()
    assert method.labels().unique().tolist() == [-1.0]
    before = method.queue()
    outcome = method(given, CLOCK)
    assert torch.equal(method.queue(), before)
    method.after_step(outcome, CLOCK)
    assert torch.equal(method.queue()[:6], outcome.carry["keys"])
    assert torch.equal(method.queue()[6:], before[6:])
    assert method.labels().flatten().tolist() == [0, 0, 0, 1, 1, 2] + [-1] * 10


def test_the_copy_follows_slowly_and_has_no_gradient() -> None:
    method = paco()
    start = copy.deepcopy(method.key)
    with torch.no_grad():
        for p in method.query.parameters():
            p.add_(1.0)
    method.after_step(method(batch(), CLOCK), CLOCK)
    for parameter, old in zip(method.key.parameters(), start.parameters(), strict=True):
        assert not parameter.requires_grad
        assert torch.allclose(parameter, old + 0.1, atol=1e-5)


@pytest.mark.parametrize(("plain_weight", "batchformer_weight"), [(0.5, 0.5), (0.0, 1.0)])
def test_batchformer_stands_in_both_branches_and_plain_keys_are_queued(
    plain_weight: float, batchformer_weight: float
) -> None:
    neck = Streams(
        BatchFormer(16, dropout=0.0),
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
    )
    method, given = paco(neck=neck), batch()
    outcome = method(given, CLOCK)
    features, key = method.query.network(given["view1"]), method.key.network(given["view2"])
    features, key = (torch.cat([rows, neck.batchformer.attend(rows)]) for rows in (features, key))
    target = given["target"].repeat(2)
    keys = method.key.project(key)
    losses = method.loss.per_sample(
        method.head(features),
        target,
        anchors=method.query.project(features),
        others=torch.cat([keys, method.queue.stored]),
        labels=torch.cat([target, torch.full((16,), -1)]),
    )
    assert torch.allclose(
        outcome.loss, plain_weight * losses[:6].mean() + batchformer_weight * losses[6:].mean()
    )
    assert ("plain" in outcome.terms) is (plain_weight > 0)
    plain_keys = F.normalize(method.key.projector(key), dim=1)[:6]
    assert torch.allclose(outcome.carry["keys"], plain_keys)


def test_the_neck_is_nowhere_in_prediction_and_deployment() -> None:
    method, image = paco(neck=Streams(BatchFormer(16))).eval(), batch()["view1"]
    method.neck.train()  # or it would be the identity, wherever it stood
    assert torch.equal(method.predict(image), method.head(method.query.network(image)))
    assert set(method.deploy().state_dict()) == set(build(method.deploy().spec).state_dict())


def test_bad_input_is_refused() -> None:
    method = paco(size=5)
    with pytest.raises(ValueError, match="queue of 5 and 6 rows: enlarge the queue"):
        method.after_step(method(batch(), CLOCK), CLOCK)
    with pytest.raises(ValueError, match=r"momentum in \[0, 1\), got 1"):
        paco(momentum=1.0)
    with pytest.raises(ValueError, match="got BatchFormer: wrap it in Streams"):
        paco(neck=BatchFormer(16))  # type: ignore[arg-type]


def test_labels_stay_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    method, given, seen = paco(), batch(), list[torch.Tensor]()
    per_sample = method.loss.per_sample

    def watched(
        *tensors: torch.Tensor, labels: torch.Tensor, **others: torch.Tensor
    ) -> torch.Tensor:
        seen.append(labels)
        return per_sample(*tensors, labels=labels, **others)

    monkeypatch.setattr(method.loss, "per_sample", watched)
    method(given, CLOCK)
    assert seen[0].dtype == torch.int64, "bf16 has no 257"
    assert seen[0].tolist() == given["target"].tolist() + [-1] * 16
    method.to(torch.bfloat16).labels.push(torch.tensor([[257]]))
    assert method.labels()[0].item() == 257
