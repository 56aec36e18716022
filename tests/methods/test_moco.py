import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, Views
from longtail.methods import MoCo, MoCo3
from longtail.methods.moco import mlp
from longtail.nn import BatchFormer, Network, Streams, build

CLOCK = Clock(0, 10, 0, 1)


def cnn() -> Network:
    torch.manual_seed(0)
    return build({"name": "fast_cnn", "size": 8, "width": 4})


def vit() -> Network:
    torch.manual_seed(0)
    return build({"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 1})


def streams(plain_weight: float = 0.5, batchformer_weight: float = 0.5) -> Streams:
    neck = BatchFormer(16, dropout=0.0)
    return Streams(neck, plain_weight=plain_weight, batchformer_weight=batchformer_weight)


def batch(rows: int = 6) -> Views:
    torch.manual_seed(1)
    views = torch.rand(2, rows, 3, 8, 8)
    return {"view1": views[0], "view2": views[1], "position": torch.arange(rows)}


def info_nce(q: Tensor, k: Tensor, others: Tensor, temperature: float) -> float:
    """Row by row: -log of the share of the positive."""
    losses = []
    for row, key in zip(q.detach(), k.detach(), strict=True):
        positive = math.exp(float(row @ key) / temperature)
        negative = sum(math.exp(float(row @ other) / temperature) for other in others)
        losses.append(-math.log(positive / (positive + negative)))
    return sum(losses) / len(losses)


def rows_of(method: MoCo, features: Tensor, projector: nn.Module) -> tuple[Tensor, Tensor]:
    """Unit vectors of the plain and the attended rows."""
    stream = method.neck.batchformer.attend(features)  # type: ignore[union-attr, operator]
    both = F.normalize(projector(torch.cat([features, stream])), dim=1)
    first, second = both.chunk(2)
    return first, second


def test_queries_are_contrasted_with_their_keys_and_the_queue() -> None:
    method, given = MoCo(cnn(), dim=8, size=16), batch()
    outcome = method(given, CLOCK)
    q = F.normalize(method.query.projector(method.query.network(given["view1"])), dim=1)
    k = F.normalize(method.key.projector(method.key.network(given["view2"])), dim=1)
    assert outcome.loss.item() == pytest.approx(info_nce(q, k, method.queue(), 0.2), rel=1e-5)
    assert torch.allclose(outcome.carry["keys"], k, atol=1e-6)
    assert not outcome.carry["keys"].requires_grad


def test_each_stream_is_contrasted_with_each_stream() -> None:
    method, given = MoCo(cnn(), dim=8, size=16, neck=streams(2.0, 0.5)), batch()
    outcome = method(given, CLOCK)
    q = rows_of(method, method.query.network(given["view1"]), method.query.projector)
    k = rows_of(method, method.key.network(given["view2"]), method.key.projector)
    weights = (2.0, 0.5)
    for i, one in enumerate(("plain", "attended")):
        for j, other in enumerate(("plain", "attended")):
            expected = weights[i] * weights[j] * info_nce(q[i], k[j], method.queue(), 0.2)
            assert outcome.terms[f"{one}_{other}"].item() == pytest.approx(expected, rel=1e-4)
    assert torch.allclose(outcome.carry["keys"], k[0], atol=1e-6)
    assert "more_keys" not in outcome.carry


@pytest.mark.parametrize("with_neck", [False, True])
@pytest.mark.parametrize(
    ("network", "parts", "order"),
    [
        (cnn, 1, [5, 0, 4, 1, 3, 2]),
        (vit, 1, [5, 0, 4, 1, 3, 2]),
        (cnn, 3, [5, 4, 0, 1, 3, 2]),  # the same images in each part, in another order
    ],
)
def test_the_order_of_the_keys_batch_does_not_change_the_loss(
    network: type[Network],
    parts: int,
    order: list[int],
    with_neck: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    neck = streams() if with_neck else None
    method = MoCo(network(), dim=8, size=16, neck=neck, norm_splits=parts)  # type: ignore[call-arg]
    losses, keys = [], []
    for given in ([0, 1, 2, 3, 4, 5], order):
        monkeypatch.setattr(torch, "randperm", lambda *_, given=given, **__: torch.tensor(given))
        outcome = copy.deepcopy(method)(batch(), CLOCK)
        losses.append(outcome.loss.item())
        keys.append(outcome.carry["keys"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert torch.allclose(keys[0], keys[1], atol=1e-5)


def test_split_batch_norm_sees_shuffled_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    order = torch.tensor([5, 0, 4, 1, 3, 2])
    monkeypatch.setattr(torch, "randperm", lambda *_, **__: order)
    method, given = MoCo(cnn(), dim=8, size=16, norm_splits=3), batch()
    by_hand = copy.deepcopy(method)
    outcome = method(given, CLOCK)
    parts = given["view2"][order].split(2)
    k = torch.cat([by_hand.key.network(part) for part in parts])[order.argsort()]
    assert torch.allclose(
        outcome.carry["keys"], F.normalize(by_hand.key.projector(k), dim=1), atol=1e-6
    )
    at_once = MoCo(cnn(), dim=8, size=16)(given, CLOCK)
    assert not torch.allclose(at_once.carry["keys"], outcome.carry["keys"], atol=1e-3)
    assert MoCo(vit(), dim=8, size=16, norm_splits=3).norm_splits == 1
    with pytest.raises(ValueError, match="6 images has no 4 parts of two images"):
        MoCo(cnn(), dim=8, size=16, norm_splits=4)(given, CLOCK)


def test_queue_and_copy_move_after_the_step_only() -> None:
    method, given = MoCo(cnn(), dim=8, size=16, momentum=0.9), batch()
    before, start = method.queue(), copy.deepcopy(method.key)
    outcome = method(given, CLOCK)
    assert torch.equal(method.queue(), before)
    with torch.no_grad():
        for p in method.query.parameters():
            p.add_(1.0)
    method.after_step(outcome, CLOCK)
    assert torch.equal(method.queue()[:6], outcome.carry["keys"])
    for parameter, old in zip(method.key.parameters(), start.parameters(), strict=True):
        assert torch.allclose(parameter, old + 0.1, atol=1e-5)


def test_keys_of_both_streams_may_enter_the_queue() -> None:
    method = MoCo(cnn(), dim=8, size=16, neck=streams(), queue_keys="both")
    outcome = method(batch(), CLOCK)
    method.after_step(outcome, CLOCK)
    both = torch.cat([outcome.carry["keys"], outcome.carry["more_keys"]])
    assert torch.equal(method.queue()[:12], both)


def test_projector_norm_over_both_streams_or_each() -> None:
    joint, by_pair = (
        MoCo(cnn(), dim=8, size=16, neck=streams(), norm=norm) for norm in ("joint", "per_stream")
    )
    by_pair.load_state_dict(joint.state_dict())
    outcome = {"joint": joint(batch(), CLOCK), "per_stream": by_pair(batch(), CLOCK)}
    alone = copy.deepcopy(joint)
    features = joint.key.network(batch()["view2"])
    plain = F.normalize(alone.key.projector(features), dim=1)
    assert torch.allclose(outcome["per_stream"].carry["keys"], plain, atol=1e-5)
    assert not torch.allclose(outcome["joint"].carry["keys"], plain, atol=1e-2)
    assert any(isinstance(part, nn.BatchNorm1d) for part in joint.query.projector.modules())
    plain_projector = MoCo(cnn(), dim=8, size=16).query.projector
    assert not any(isinstance(part, nn.BatchNorm1d) for part in plain_projector.modules())


def third(pairs: str = "all", neck: Streams | None = None, scale: float = 1.0) -> MoCo3:
    torch.manual_seed(3)
    return MoCo3(cnn(), dim=8, hidden=16, neck=neck, pairs=pairs, loss_scale=scale)  # type: ignore[arg-type]


def third_by_hand(method: MoCo3) -> dict[tuple[int, str, str], float]:
    """The loss of each direction and pair of streams, against the batch's other keys."""
    given, losses = batch(), {}
    views = [given["view1"], given["view2"]]
    for direction in (0, 1):
        branches = []
        for branch, view in ((method.query, direction), (method.key, 1 - direction)):
            features = branch.network(views[view])
            stream = method.neck.batchformer.attend(features)  # type: ignore[union-attr, operator]
            rows = branch.projector(torch.cat([features, stream]))
            rows = method.predictor(rows) if branch is method.query else rows
            branches.append(dict(zip(("plain", "attended"), rows.chunk(2), strict=True)))
        for one, q in branches[0].items():
            for other, k in branches[1].items():
                q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
                shares = (q @ k.T).softmax(1).diagonal()
                losses[direction, one, other] = 2 * (-shares.log().mean()).item()
    return losses


def test_version_3_contrasts_all_pairs_in_both_directions() -> None:
    method = third(neck=streams(1.0, 1.0), scale=0.5)
    expected = third_by_hand(copy.deepcopy(method))
    outcome = method(batch(), CLOCK)
    for one in ("plain", "attended"):
        for other in ("plain", "attended"):
            both = 0.5 * (expected[0, one, other] + expected[1, one, other])
            assert outcome.terms[f"{one}_{other}"].item() == pytest.approx(both, rel=1e-4)


def test_the_released_pairings_skip_one_stream_and_count_others_twice() -> None:
    method = third("released", neck=streams(1.0, 1.0))
    by_pair = third_by_hand(copy.deepcopy(method))
    expected = (
        by_pair[0, "plain", "plain"]
        + by_pair[0, "plain", "attended"]
        + 2 * by_pair[0, "attended", "plain"]
        + 2 * by_pair[1, "plain", "plain"]
        + 2 * by_pair[1, "plain", "attended"]
    )
    assert method(batch(), CLOCK).loss.item() == pytest.approx(expected, rel=1e-4)


def test_the_momentum_of_version_3_rises_to_one() -> None:
    method, moved = third(), []
    for clock in (Clock(0, 10, 0, 1), Clock(5, 10, 0, 1)):
        copied = copy.deepcopy(method)
        with torch.no_grad():
            for p in copied.query.parameters():
                p.add_(1.0)
        copied.after_step(copied(batch(), clock), clock)
        first, second = next(copied.key.parameters()), next(method.key.parameters())
        moved.append((first - second).mean().item())
    assert moved == pytest.approx([0.01, 0.005], abs=1e-5)


def test_a_transformer_has_a_deeper_projector_and_fixed_patches() -> None:
    method = MoCo3(vit(), dim=8, hidden=16)
    linear = [part for part in method.query.projector.modules() if isinstance(part, nn.Linear)]
    assert len(linear) == 3
    fixed = [name for name, p in method.query.named_parameters() if not p.requires_grad]
    assert fixed == [
        "network.body.patch_embed.proj.weight",
        "network.body.patch_embed.proj.bias",
    ]
    assert (
        len([part for part in third().query.projector.modules() if isinstance(part, nn.Linear)])
        == 2
    )


def test_prediction_has_no_neck_and_no_projector() -> None:
    method, image = MoCo(cnn(), dim=8, size=16, neck=streams()).eval(), batch()["view1"]
    method.neck.train()  # or it would be the identity, wherever it stood
    assert torch.equal(method.predict(image), method.query.network(image))
    assert method.deploy() is method.query.network


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"momentum in \[0, 1\), got 1"):
        MoCo(cnn(), momentum=1.0)
    with pytest.raises(ValueError, match="positive temperature and loss scale"):
        MoCo(cnn(), temperature=0.0)
    with pytest.raises(ValueError, match="got BatchFormer: wrap it in Streams"):
        MoCo(cnn(), neck=BatchFormer(16))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one layer, got 0"):
        mlp(4, 4, 4, layers=0)
    with pytest.raises(ValueError, match="at least one part"):
        MoCo(cnn(), norm_splits=0)
