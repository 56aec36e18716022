import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from children import ended
from torch import Tensor, nn

from longtail.nn import BatchFormer, PassThrough, Streams


def slow_layer(layer: nn.TransformerEncoderLayer, rows: Tensor, heads: int) -> Tensor:
    """LN(MSA(x) + x), then LN(MLP(x) + x), with loops over rows and heads."""
    count, dim = rows.shape
    project = rows @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias
    query, key, value = project.split(dim, 1)
    mixed, width = torch.zeros_like(rows), dim // heads
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        for i in range(count):
            scores = torch.stack(
                [query[i, part] @ key[j, part] / math.sqrt(width) for j in range(count)]
            )
            mixed[i, part] = sum(
                (share * value[j, part] for j, share in enumerate(scores.softmax(0))),
                torch.zeros(width, dtype=rows.dtype),
            )
    rows = layer.norm1(rows + layer.self_attn.out_proj(mixed))
    return layer.norm2(rows + layer.linear2(layer.linear1(rows).relu()))  # type: ignore[no-any-return]


def test_it_is_a_post_norm_encoder_over_the_batch() -> None:
    torch.manual_seed(0)
    batchformer = BatchFormer(8, heads=2, layers=2, dropout=0.0, hidden=12).double()
    features = torch.randn(5, 8, dtype=torch.float64)
    slow = features
    for layer in batchformer.layers:
        assert isinstance(layer, nn.TransformerEncoderLayer)
        slow = slow_layer(layer, slow, 2)
    doubled, target = batchformer(features, torch.arange(5))
    assert torch.equal(doubled[:5], features)
    assert torch.allclose(doubled[5:], slow)
    assert target.tolist() == [0, 1, 2, 3, 4] * 2


def test_layers_start_different_and_hidden_is_dim_by_default() -> None:
    first, second = BatchFormer(8, layers=2).layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)  # type: ignore[arg-type, union-attr]
    assert first.linear1.weight.shape == (8, 8)  # type: ignore[union-attr]


def test_in_eval_it_is_the_identity() -> None:
    features, target = torch.randn(5, 8), torch.rand(5, 3)
    out = BatchFormer(8).eval()(features, target)
    assert out[0] is features
    assert out[1] is target


def test_a_batch_of_one_works() -> None:
    assert BatchFormer(8)(torch.randn(1, 8))[0].shape == (2, 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_features_of_any_float_type_keep_it(dtype: torch.dtype) -> None:
    (doubled,) = BatchFormer(8)(torch.randn(3, 8).to(dtype))
    assert doubled.dtype == dtype
    assert doubled.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_the_module_may_be_of_another_type_itself(dtype: torch.dtype) -> None:
    assert BatchFormer(8).to(dtype)(torch.randn(3, 8).to(dtype))[0].dtype == dtype


def test_restricted_to_itself_a_row_does_not_see_the_others() -> None:
    features = torch.randn(4, 8)
    for attention, alone in (("self", True), ("batch", False)):
        batchformer = BatchFormer(8, dropout=0.0, attention=attention)  # type: ignore[arg-type]
        together = batchformer.attend(features)
        apart = torch.cat([batchformer.attend(row[None]) for row in features])
        assert torch.allclose(together, apart, atol=1e-6) is alone


def test_gradient_crosses_the_batch() -> None:
    features = torch.randn(4, 8, requires_grad=True)
    BatchFormer(8, dropout=0.0).attend(features)[0].square().mul(torch.arange(8.0)).sum().backward()
    assert features.grad is not None
    assert features.grad[1:].abs().sum() > 0


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dim": 10}, "got dim 10 and heads 4"),
        ({"dim": 8, "layers": 0}, "at least one layer"),
        ({"dim": 8, "attention": "row"}, "attention must be 'batch' or 'self'"),
        ({"dim": 8, "scope": "world"}, "scope 'local' or 'global'"),
    ],
)
def test_bad_settings_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchFormer(**keywords)


def test_rows_that_do_not_fit_are_refused_also_in_eval() -> None:
    for batchformer in (BatchFormer(8), BatchFormer(8).eval()):
        with pytest.raises(ValueError, match=r"aligned tensors must have 4 rows.*got shape \(3,\)"):
            batchformer(torch.randn(4, 8), torch.arange(3))
        with pytest.raises(ValueError, match=r"expected features \(N, 8\), got \(4, 7\)"):
            batchformer(torch.randn(4, 7))


def test_streams_name_and_weigh_their_rows() -> None:
    neck = Streams(BatchFormer(8), plain_weight=0.25, batchformer_weight=2.0)
    features, streams, (target,) = neck(torch.randn(3, 8), torch.arange(3))
    assert {name: (stream.rows, stream.weight) for name, stream in streams.items()} == {
        "plain": (slice(0, 3), 0.25),
        "attended": (slice(3, 6), 2.0),
    }
    assert len(features) == len(target) == 6


def test_streams_are_the_identity_in_eval() -> None:
    features = torch.randn(3, 8)
    streamed = Streams(BatchFormer(8)).eval()(features)
    assert streamed.features is features
    assert streamed.streams == PassThrough()(features).streams


def test_a_batchformer_without_loss_is_frozen() -> None:
    assert not any(
        p.requires_grad
        for p in Streams(BatchFormer(8), plain_weight=1.5, batchformer_weight=0.0).parameters()
    )
    assert all(
        p.requires_grad
        for p in Streams(BatchFormer(8), plain_weight=0.0, batchformer_weight=1.0).parameters()
    )


@pytest.mark.parametrize(("plain_weight", "batchformer_weight"), [(-1.0, 1.0), (0.0, 0.0)])
def test_weights_without_a_loss_are_refused(plain_weight: float, batchformer_weight: float) -> None:
    with pytest.raises(ValueError, match="one of them positive"):
        Streams(BatchFormer(8), plain_weight=plain_weight, batchformer_weight=batchformer_weight)


def test_it_drops_into_a_plain_loop_with_a_timm_model() -> None:
    import timm

    torch.manual_seed(0)
    model = timm.create_model("test_vit", img_size=16, patch_size=8, num_classes=0)
    batchformer, head = BatchFormer(64), nn.Linear(64, 3)
    optimizer = torch.optim.SGD(
        [*model.parameters(), *batchformer.parameters(), *head.parameters()], lr=0.05
    )
    image, target = torch.rand(6, 3, 16, 16), torch.arange(6) % 3
    losses = []
    for _ in range(8):
        features, labels = batchformer(model(image), target)
        loss = nn.functional.cross_entropy(head(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_two_processes_attend_over_all_rows_as_one_does(tmp_path: Path) -> None:
    script = Path(__file__).with_name("global_attention.py")
    source = str(Path(__file__).parents[2] / "src")
    environment = {
        **os.environ,
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, str(script)]
    both = [
        subprocess.Popen(
            [*command, str(rank), "2", str(tmp_path / "store"), str(tmp_path)], env=environment
        )
        for rank in (0, 1)
    ]
    with ended(*both):
        assert [process.wait(timeout=120) for process in both] == [0, 0]

    torch.manual_seed(0)
    batchformer = BatchFormer(8, layers=2, dropout=0.0, scope="global").double()
    rows = torch.randn(7, 8, dtype=torch.float64).requires_grad_()
    doubled, _ = batchformer(rows, torch.arange(7))
    doubled.square().mul(torch.arange(1.0, 9.0)).sum().backward()
    assert rows.grad is not None
    weights = torch.cat([p.grad.flatten() for p in batchformer.parameters() if p.grad is not None])
    for rank, share in enumerate((slice(0, 3), slice(3, 7))):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.allclose(got["doubled"], torch.cat([doubled[:7][share], doubled[7:][share]]))
        assert got["target"].tolist() == list(range(7))[share] * 2
        assert torch.allclose(got["rows"], rows.grad[share])
        assert torch.allclose(got["weights"], weights)
