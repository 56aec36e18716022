"""Averages against a slow reference, and weights that are only lent."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from toys import ToyMethod, digest

from longtail.core import Clock
from longtail.engine.averaging import (
    EMA,
    LossValley,
    Uniform,
    averaged_tensors,
    load_partial,
    temporary_weights,
)


def drift(method: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for tensor in averaged_tensors(method).values():
            tensor += torch.randn(tensor.shape, generator=generator)


def test_the_moving_average_is_the_textbook_one() -> None:
    method, ema = ToyMethod(), EMA(0.8)
    slow: dict[str, torch.Tensor] = {}
    for step in range(30):
        drift(method, step)
        ema.update(method, Clock(step, 30, 0, 1))
        decay = min(0.8, (1 + step) / (10 + step))
        for name, tensor in averaged_tensors(method).items():
            value = tensor.double()
            slow[name] = value if step == 0 else decay * slow[name] + (1 - decay) * value
    for name, tensor in ema.weights().items():
        torch.testing.assert_close(tensor.double(), slow[name], rtol=1e-4, atol=1e-4)
    assert "trunk.1.running_mean" in ema.weights()
    assert "slow" not in ema.weights(), "state that a method moves by itself is not averaged"


def test_the_uniform_average_is_the_mean_of_its_window() -> None:
    method, mean, seen = ToyMethod(), Uniform(start=0.5), []
    for step in range(10):
        drift(method, step)
        mean.update(method, Clock(step, 10, 0, 1))
        if step < 5:
            assert not mean.weights()
        else:
            seen.append(method.head.weight.detach().double().clone())
    torch.testing.assert_close(
        mean.weights()["head.weight"].double(), torch.stack(seen).mean(0), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("change", ["format", "type", "assigned", "copied", "another"])
def test_an_average_follows_the_method_whatever_was_done_to_it(change: str) -> None:
    method: Any = nn.Sequential(nn.Conv2d(3, 4, 3))
    ema = EMA(0.5)
    ema.update(method, Clock(0, 50, 0, 1))
    if change == "format":
        method.to(memory_format=torch.channels_last)
    elif change == "type":
        method.double()
    elif change == "assigned":
        method.load_state_dict(
            {name: tensor.clone() for name, tensor in method.state_dict().items()}, assign=True
        )
    elif change == "copied":
        ema = copy.deepcopy(ema)
    else:
        method = copy.deepcopy(method)
    with torch.no_grad():
        method[0].weight.fill_(7.0)
    for step in range(1, 40):
        ema.update(method, Clock(step, 50, 0, 1))
    torch.testing.assert_close(ema.weights()["0.weight"], method[0].weight.detach())


def test_an_average_takes_in_what_is_unfrozen_later() -> None:
    method: Any = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    ema = EMA(0.5)
    ema.update(method, Clock(0, 10, 0, 1))
    assert {*ema.weights()} == {"1.weight", "1.bias"}
    method.requires_grad_(True)
    ema.update(method, Clock(1, 10, 0, 1))
    assert torch.equal(ema.weights()["0.weight"], method[0].weight)


@pytest.mark.parametrize("build", [lambda: EMA(0.9), lambda: Uniform(start=0.0)])
def test_an_average_continues_from_its_state(build: type) -> None:
    method, complete, half = ToyMethod(), build(), build()
    for step in range(6):
        drift(method, step)
        complete.update(method, Clock(step, 6, 0, 1))
        half.update(method, Clock(step, 6, 0, 1))
        if step == 2:
            state, half = copy.deepcopy(half.state_dict()), build()
            half.load_state_dict(state)
    assert all(
        torch.equal(complete.weights()[name], half.weights()[name]) for name in complete.weights()
    )


def test_temporary_weights_are_restored() -> None:
    method, other = ToyMethod(), ToyMethod()
    before = digest(method)
    with temporary_weights(
        method, {name: t.clone() for name, t in averaged_tensors(other).items()}
    ):
        assert torch.equal(method.head.weight, other.head.weight)
    assert digest(method) == before
    load_partial(method, {"head.weight": other.head.weight.detach()})
    assert torch.equal(method.head.weight, other.head.weight)


def test_a_frozen_network_is_not_followed() -> None:
    method = ToyMethod()
    method.trunk.requires_grad_(False)
    assert set(averaged_tensors(method)) == {"head.weight", "head.bias"}


def test_statistics_of_a_norm_without_weights_are_followed() -> None:
    method = ToyMethod()
    method.trunk[1] = nn.BatchNorm1d(8, affine=False)
    assert {"trunk.1.running_mean", "trunk.1.running_var"} <= set(averaged_tensors(method))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"decay in \(0, 1\), got 1"):
        EMA(1.0)
    with pytest.raises(ValueError, match="start < end"):
        Uniform(start=0.9, end=0.5)


def slow_valley(
    segments: list[list[torch.Tensor]], losses: list[float], *, converge: int, tolerance: int
) -> torch.Tensor:
    """SWAD by its definition: find the begin, then the end, then take the mean of the segments."""
    means = [torch.stack(weights).double().mean(0) for weights in segments]
    for begin in range(len(losses) - converge + 1):
        window = losses[begin : begin + converge]
        if all(window[0] <= other for other in window):
            limit = 1.3 * sum(window) / converge
            break
    else:
        return means[-1]
    end = begin + 1  # the first segment is always in
    while end < len(losses) and any(loss <= limit for loss in losses[end : end + tolerance]):
        end += 1
    return torch.stack(means[begin:end]).mean(0)


VALLEYS = {
    "never begins": [3.0, 2.0, 1.0, 0.5],
    "begins at once": [1.0, 1.1, 1.2, 1.0, 1.1, 1.0, 1.2],
    "has no end": [3.0, 2.0, 1.0, 1.1, 1.2, 1.0, 1.1, 1.0, 1.2, 1.1],
    "ends for good": [3.0, 2.0, 1.0, 1.1, 1.2, 1.0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0],
    "has a short hill": [3.0, 1.0, 1.1, 1.2, 1.0, 5.0, 5.0, 1.0, 1.1, 5.0, 5.0],
    "is left at the end": [3.0, 1.0, 1.1, 1.2, 5.0, 5.0],
}


@pytest.mark.parametrize("losses", VALLEYS.values(), ids=VALLEYS.keys())
@pytest.mark.parametrize("tolerance", [1, 2, 3, 4])
def test_the_loss_valley_is_the_mean_of_its_segments(losses: list[float], tolerance: int) -> None:
    method, swad = ToyMethod(), LossValley(n_tolerance=tolerance)
    segments: list[list[torch.Tensor]] = []
    for epoch, loss in enumerate(losses):
        segments.append([])
        for step in range(3 * epoch, 3 * epoch + 3):
            drift(method, step)
            swad.update(method, Clock(step, 3 * len(losses), epoch, len(losses)))
            segments[-1].append(method.head.weight.detach().clone())
        swad.observe({"val/loss": loss}, Clock(step, 3 * len(losses), epoch, len(losses)))
        torch.testing.assert_close(
            swad.weights()["head.weight"].double(),
            slow_valley(segments, losses[: epoch + 1], converge=3, tolerance=tolerance),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("at", range(0, 24, 5))
def test_a_resumed_loss_valley_goes_on_to_the_bit(at: int) -> None:
    losses = VALLEYS["ends for good"]

    def follow(*, resume_at: int) -> LossValley:
        torch.manual_seed(0)
        method, swad = ToyMethod(), LossValley(n_tolerance=4)
        for step in range(2 * len(losses)):
            drift(method, step)
            swad.update(method, Clock(step, 24, 0, 1))
            if step % 2:
                swad.observe({"val/loss": losses[step // 2]}, Clock(step, 24, 0, 1))
            if step == resume_at:
                file = io.BytesIO()
                torch.save(swad.state_dict(), file)
                file.seek(0)
                swad = LossValley(n_tolerance=4)
                swad.load_state_dict(torch.load(file, weights_only=True))
        return swad

    complete, resumed = follow(resume_at=-1), follow(resume_at=at)
    assert complete.ended
    for name, tensor in complete.weights().items():
        assert torch.equal(tensor, resumed.weights()[name])


def test_a_loss_valley_without_its_loss_says_so() -> None:
    method, swad = ToyMethod(), LossValley()
    swad.update(method, Clock(0, 1, 0, 1))
    with pytest.raises(ValueError, match=r"reads 'val/loss', but the evaluations are: val/top1"):
        swad.observe({"val/top1": 0.5}, Clock(0, 1, 0, 1))
