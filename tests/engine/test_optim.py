"""Parameter groups: who decays, at which rate."""

import math
from copy import deepcopy
from typing import Any, cast

import pytest
import timm
import torch
from torch import nn
from toys import ToyMethod

from longtail.engine.optim import (
    Build,
    adamw,
    clipped,
    from_timm,
    lars,
    parameter_groups,
    reset_at,
    sgd,
)


def by_name(method: nn.Module, groups: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    names = {id(p): name for name, p in method.named_parameters()}
    return {
        names[id(p)]: (group["weight_decay"], group["lr_scale"])
        for group in groups
        for p in group["params"]
    }


def test_norms_and_biases_do_not_decay() -> None:
    method = ToyMethod()
    decay = {
        name: decay for name, (decay, _) in by_name(method, parameter_groups(method, 0.1)).items()
    }
    assert {name for name, value in decay.items() if value == 0.1} == {
        "trunk.0.weight",
        "head.weight",
    }
    assert set(decay) == {name for name, _ in method.named_parameters()}


def test_a_part_can_have_its_lr() -> None:
    method = ToyMethod()
    scales = {
        name: scale
        for name, (_, scale) in by_name(
            method, parameter_groups(method, 0.1, scales={"head": 0.1})
        ).items()
    }
    assert {name for name, value in scales.items() if value == 0.1} == {"head.weight", "head.bias"}
    with pytest.raises(ValueError, match=r"names 'haed', .*: known are head, trunk"):
        parameter_groups(method, 0.1, scales={"haed": 0.1})


def test_a_parameter_of_the_method_itself_can_have_its_lr() -> None:
    method = ToyMethod()
    method.temperature = nn.Parameter(torch.zeros(()))
    method.temperatures = nn.Linear(1, 1)
    scales = {
        name: scale
        for name, (_, scale) in by_name(
            method, parameter_groups(method, 0.1, scales={"temperature": 0.1})
        ).items()
    }
    assert {name for name, value in scales.items() if value == 0.1} == {"temperature"}


def test_a_decay_over_layers_of_what_is_no_transformer_is_refused() -> None:
    method = ToyMethod()
    method.blocks = nn.ModuleList([nn.Linear(2, 2)])
    with pytest.raises(
        ValueError,
        match=r"layer decay needs a vision transformer, got 0\.5",
    ):
        parameter_groups(method, 0.1, layer_decay=0.5)


def test_layer_decay_agrees_with_timm() -> None:
    vit = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        depth=3,
        embed_dim=12,
        num_heads=3,
        num_classes=5,
    )
    ours = by_name(vit, parameter_groups(vit, 0.05, layer_decay=0.75))
    from timm.optim import param_groups_layer_decay

    theirs = by_name(
        vit,
        param_groups_layer_decay(
            vit, 0.05, layer_decay=0.75, no_weight_decay_list=["pos_embed", "cls_token"]
        ),
    )
    assert set(ours) == set(theirs)
    for name, (decay, scale) in theirs.items():
        # Timm gives the last norm the head's rate only in some versions
        if not name.startswith("norm."):
            assert ours[name][0] == decay, name
            assert math.isclose(ours[name][1], scale), name
    assert ours["head.weight"] == (0.05, 1.0)
    assert math.isclose(ours["pos_embed"][1], 0.75**4)


def test_registers_and_the_norm_before_the_blocks_are_of_the_embedding() -> None:
    small: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "depth": 2,
        "embed_dim": 12,
        "num_heads": 3,
        "num_classes": 5,
    }
    vit = timm.models.VisionTransformer(**small, reg_tokens=2, pre_norm=True)
    ours = by_name(vit, parameter_groups(vit, 0.05, layer_decay=0.5))
    assert ours["reg_token"] == (0.0, 0.5**3)
    assert ours["norm_pre.weight"] == (0.0, 0.5**3)


@pytest.mark.parametrize("decay", [0.0, -1.0, 1.5, math.nan])
def test_a_decay_that_is_none_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match=r"expected a layer decay in \(0, 1\]"):
        parameter_groups(ToyMethod(), 0.1, layer_decay=decay)


def test_frozen_parameters_are_left_out_and_nothing_to_train_is_refused() -> None:
    method = ToyMethod()
    method.trunk.requires_grad_(False)
    assert set(by_name(method, parameter_groups(method, 0.1))) == {"head.weight", "head.bias"}
    with pytest.raises(ValueError, match="no trainable parameter"):
        parameter_groups(method.requires_grad_(False), 0.1)


def test_clipping_bounds_the_step() -> None:
    method = ToyMethod()
    before = [p.clone() for p in method.parameters()]
    optimizer: Any = clipped(
        sgd(lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0), norm=0.01
    )(method)

    def closure() -> str:
        for p in method.parameters():
            p.grad = torch.full_like(p, 100.0)
        return "outcome"

    assert optimizer.step(closure) == "outcome"
    moved = torch.cat(
        [(p - b).flatten() for p, b in zip(method.parameters(), before, strict=True)]
    ).norm()
    assert moved.item() == pytest.approx(0.01, rel=1e-3)
    with pytest.raises(ValueError, match="must be positive"):
        clipped(sgd(lr=1.0), norm=0.0)


def test_optimizers_from_timm_and_torch_keep_the_groups() -> None:
    method = ToyMethod()
    for build in (from_timm("lamb", lr=0.01, weight_decay=0.1), adamw(lr=0.01), sgd(lr=0.01)):
        optimizer = build(method)
        decay = {
            group["weight_decay"]: {id(p) for p in group["params"]}
            for group in optimizer.param_groups
        }
        matrices = {id(method.trunk[0].weight), id(method.head.weight)}
        assert len(decay) == 2
        assert decay.pop(0.0) == {id(p) for p in method.parameters()} - matrices
        assert next(iter(decay.values())) == matrices


def test_shares_of_the_rate_hold_in_any_loop() -> None:
    method = ToyMethod()
    for build in (
        sgd(lr=0.1, scales={"head": 0.1}),
        adamw(lr=0.1, scales={"head": 0.1}),
        clipped(sgd(lr=0.1, scales={"head": 0.1}), norm=1),
    ):
        optimizer = build(method)
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        assert {rates[id(p)] for p in method.trunk.parameters()} == {0.1}
        assert [rates[id(p)] for p in method.head.parameters()] == pytest.approx([0.01, 0.01])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.5)
        assert {round(float(rate), 6) for rate in schedule.get_last_lr()} == {0.05, 0.005}


def test_hooks_are_those_of_the_inner_optimizer() -> None:
    method, called = ToyMethod(), []
    optimizer: Any = clipped(sgd(lr=0.1), norm=1.0)(method)
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    for p in method.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert called == ["after"]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = optimizer.nonsense


@pytest.mark.parametrize("build", [sgd(lr=0.1), adamw(lr=0.1)])
def test_a_reset_optimizer_continues_as_a_new_one(build: Build) -> None:
    def train(optimizer: torch.optim.Optimizer, weights: nn.Linear, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            weights(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    start = nn.Linear(3, 2)
    reset, stopped, by_hand = deepcopy(start), deepcopy(start), deepcopy(start)
    train(reset_at(build, step=4)(reset), reset, 7)
    train(build(by_hand), by_hand, 4)
    train(build(by_hand), by_hand, 3)
    assert torch.equal(reset.weight, by_hand.weight)
    # From a checkpoint before that step
    first = reset_at(build, step=4)(stopped)
    train(first, stopped, 2)
    second = reset_at(build, step=4)(stopped)
    second.load_state_dict(first.state_dict())
    train(second, stopped, 5)
    assert torch.equal(stopped.weight, by_hand.weight)
    plain = deepcopy(start)
    train(build(plain), plain, 7)
    assert not torch.equal(plain.weight, by_hand.weight)


def test_lars_moves_each_matrix_by_its_length() -> None:
    torch.manual_seed(0)
    method = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, bias=False)).double()
    nn.init.zeros_(cast(nn.Linear, method[1]).weight)  # a matrix of length 0 has no ratio
    expected = {name: p.detach().clone() for name, p in method.named_parameters()}
    momenta = {name: torch.zeros_like(p) for name, p in expected.items()}
    optimizer: Any = lars(lr=0.3, weight_decay=0.1, trust=0.01, scales={"1": 0.5})(method)

    def closure() -> str:
        optimizer.zero_grad()
        rows = torch.arange(8.0, dtype=torch.float64).view(2, 4)
        (method(rows) - 1).square().sum().backward()
        return "outcome"

    for _ in range(3):
        assert optimizer.step(closure) == "outcome"
        for name, p in method.named_parameters():
            update = p.grad
            assert update is not None
            if p.ndim > 1:
                update = update + 0.1 * expected[name]
                length = math.sqrt(float(expected[name].square().sum()))
                of_update = math.sqrt(float(update.square().sum()))
                update = update * (0.01 * length / of_update if length * of_update > 0 else 1.0)
            momenta[name] = 0.9 * momenta[name] + update
            expected[name] = expected[name] - (0.15 if name[0] == "1" else 0.3) * momenta[name]
            assert torch.allclose(p, expected[name], atol=1e-12)


def test_under_lars_a_factor_of_the_loss_changes_next_to_nothing() -> None:
    moved = []
    for factor in (1.0, 4.0):
        torch.manual_seed(0)
        method = nn.Linear(4, 3, bias=False).double()
        start, optimizer = method.weight.detach().clone(), lars(lr=1.0)(method)
        (factor * method(torch.ones(2, 4).double())).square().sum().backward()
        optimizer.step()
        moved.append((method.weight - start).detach())
    assert torch.allclose(moved[0], moved[1], rtol=1e-4)
