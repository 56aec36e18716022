"""SAM: two looks, one step, weights and batch-norm as if it had looked once."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from toys import ToyBatches, ToyMethod

from longtail.core import Clock, Outcome
from longtail.engine.optim import sgd
from longtail.engine.sam import sam
from longtail.recipes.builders import sharpness_aware

CLOCK = Clock(0, 1, 0, 1)


def closure_for(method: ToyMethod, optimizer: Any) -> Callable[[], Outcome]:
    batch = next(ToyBatches().epoch(0))

    def closure() -> Outcome:
        optimizer.zero_grad()
        outcome: Outcome = method(batch, CLOCK)
        outcome.loss.backward()
        return outcome

    return closure


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_is_a_separate_optimizer(
    copied: Callable[[Any], Any],
) -> None:
    method = ToyMethod(norm=False, dropout=0.0)
    optimizer: Any = sam(sgd(lr=0.1), rho=0.5)(method)
    optimizer.step(closure_for(method, optimizer))
    other, second = copied((method, optimizer))
    assert second.param_groups is second.inner.param_groups
    for model, steps in ((method, optimizer), (other, second)):
        steps.step(closure_for(model, steps))
    for mine, theirs in zip(method.parameters(), other.parameters(), strict=True):
        assert mine is not theirs
        assert torch.equal(mine, theirs)  # with the momentum of before


def test_the_step_uses_the_gradient_at_the_perturbed_weights() -> None:
    ours = ToyMethod(norm=False, dropout=0.0)
    slow = copy.deepcopy(ours)
    optimizer: Any = sam(sgd(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0), rho=0.5)(ours)
    optimizer.step(closure_for(ours, optimizer))

    batch = next(ToyBatches().epoch(0))
    parameters = list(slow.parameters())
    first = torch.autograd.grad(slow(batch, CLOCK).loss, parameters)
    length = sum(float((g**2).sum()) for g in first) ** 0.5
    moved = copy.deepcopy(slow)
    with torch.no_grad():
        for p, g in zip(moved.parameters(), first, strict=True):
            p.add_(g, alpha=0.5 / length)
    second = torch.autograd.grad(moved(batch, CLOCK).loss, list(moved.parameters()))
    for p, before, g in zip(ours.parameters(), parameters, second, strict=True):
        torch.testing.assert_close(p, before - 0.1 * g)


def test_it_reports_the_loss_at_the_unperturbed_weights() -> None:
    method = ToyMethod(norm=False, dropout=0.0)
    clean = method(next(ToyBatches().epoch(0)), CLOCK).loss
    optimizer: Any = sam(sgd(lr=0.1), rho=5.0)(method)
    torch.testing.assert_close(optimizer.step(closure_for(method, optimizer)).loss, clean)


def test_weights_come_back_to_the_bit() -> None:
    method = ToyMethod()
    before = [p.clone() for p in method.parameters()]
    optimizer: Any = sam(sgd(lr=0.0), rho=0.7)(method)
    optimizer.step(closure_for(method, optimizer))
    assert all(torch.equal(p, b) for p, b in zip(method.parameters(), before, strict=True))


def test_batch_statistics_move_once() -> None:
    method = ToyMethod()
    once = copy.deepcopy(method)
    once(next(ToyBatches().epoch(0)), CLOCK)
    optimizer: Any = sam(sgd(lr=0.1), rho=0.7)(method)
    optimizer.step(closure_for(method, optimizer))
    for a, b in zip(method.trunk.buffers(), once.trunk.buffers(), strict=True):
        assert torch.equal(a, b)
    assert isinstance(method.trunk[1], nn.BatchNorm1d)
    assert method.trunk[1].num_batches_tracked == 1


def test_state_and_rates_are_the_inner_optimizers() -> None:
    method = ToyMethod()
    optimizer: Any = sam(sgd(lr=0.1), rho=0.1)(method)
    optimizer.step(closure_for(method, optimizer))
    assert optimizer.state_dict()["state"], "momentum must reach checkpoints"
    optimizer.param_groups[0]["lr"] = 0.5
    assert optimizer.inner.param_groups[0]["lr"] == 0.5


def test_bad_use_is_refused() -> None:
    with pytest.raises(ValueError, match="rho must be positive, got 0"):
        sam(sgd(lr=0.1), rho=0.0)
    with pytest.raises(ValueError, match="needs a closure"):
        sam(sgd(lr=0.1), rho=0.1)(ToyMethod()).step()


@pytest.mark.parametrize(
    ("progress", "radius"),
    [(0.0, 0.05), (4.9 / 90, 0.05), (5 / 90, 0.1), (0.66, 0.1), (60 / 90, 0.5), (0.999, 0.5)],
)
def test_a_rising_radius_is_that_of_the_share_of_training(progress: float, radius: float) -> None:
    rising, constant = (ToyMethod(norm=False, dropout=0.0) for _ in range(2))
    constant.load_state_dict(rising.state_dict())
    optimizer: Any = sharpness_aware(sgd(lr=0.1), 0.5, "rising")(rising)
    optimizer.param_groups[0]["progress"] = progress
    optimizer.step(closure_for(rising, optimizer))
    expected: Any = sam(sgd(lr=0.1), rho=radius)(constant)
    expected.step(closure_for(constant, expected))
    assert optimizer.radius() == pytest.approx(radius)
    for ours, theirs in zip(rising.parameters(), constant.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_rising_radius_needs_the_time() -> None:
    method = ToyMethod(norm=False, dropout=0.0)
    optimizer: Any = sam(sgd(lr=0.1), rho={0.0: 0.05, 0.5: 0.5})(method)
    with pytest.raises(ValueError, match="needs the share of training that is done"):
        optimizer.step(closure_for(method, optimizer))
    with pytest.raises(ValueError, match="from the start of training, 0, on"):
        sam(sgd(lr=0.1), rho={0.5: 0.5})
    with pytest.raises(ValueError, match="no effect with --rho 0"):
        sharpness_aware(sgd(lr=0.1), 0.0, "rising")


def test_a_second_pass_that_fails_leaves_the_weights_as_they_were() -> None:
    method = ToyMethod(norm=False, dropout=0.0)
    optimizer: Any = sam(sgd(lr=0.1), rho=0.5)(method)
    before, looks = (
        [p.detach().clone() for p in method.parameters()],
        iter([closure_for(method, optimizer), None]),
    )

    def closure() -> Outcome:
        look = next(looks)
        if look is None:
            raise MemoryError
        return look()

    with pytest.raises(MemoryError):
        optimizer.step(closure)
    assert all(torch.equal(p, old) for p, old in zip(method.parameters(), before, strict=True))
