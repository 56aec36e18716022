"""The contract of every method, one function for each part.

That a run can be killed at any step and resumed bit for bit is part of the engine's contract:
`check_recipe` checks it with a method in its recipe.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from longtail.core import Clock, Method
from longtail.nn import build
from longtail.testing.requiring import require

Batch = Mapping[str, Tensor]
CLOCKS = (Clock(0, 100, 0, 10), Clock(50, 100, 5, 10), Clock(99, 100, 9, 10))
"""The start, the middle and the end of training."""


def check_method(
    method: Callable[[], Method[Any]],
    batch: Batch,
    *,
    moving: Sequence[str] = (),
    first_order: Callable[[], Method[Any]] | None = None,
    clocks: Sequence[Clock] = CLOCKS,
) -> None:
    """Check that a method keeps the contract of `longtail.core.Method`, in double precision.

    It catches, with the name of what is wrong:

    - state that `forward` writes, and random numbers that are not seeded (`check_forward`);
    - trainable weights that no gradient reaches (`check_gradients`);
    - a loss that a small step does not lower as its gradient promises (`check_first_order`);
    - a prediction that depends on the other rows of the batch (`check_predictions`);
    - frozen parts, such as teachers, that change while training (`check_frozen_parts`);
    - a deployed network that is not `predict`, or that its spec does not rebuild, and heads that
      lack "logits" (`check_deployment`).

    If networks alternate (`steps_per_round`), the gradients of a round are taken together.

    Args:
        method: builds the method; called several times, each time with the same seed.
        batch: a batch as the method's `forward` gets it, with at least two classes of images and a
            size that the network was built for. Floats become doubles.
        moving: names of modules without trainable weights that `after_step` moves, such as "key"
            for a momentum copy; all others have to stay as they are.
        first_order: builds a variant for `check_first_order`, where the method stops gradients on
            purpose and its loss therefore falls by more or less than the gradient says.
        clocks: the moments of training at which `forward` is checked.

    >>> from longtail.losses import CrossEntropy
    >>> from longtail.methods import Classify
    >>> from longtail.nn import Linear, build
    >>> image, target = torch.rand(6, 3, 8, 8), torch.tensor([0, 0, 0, 1, 1, 2])
    >>> batch = {"image": image, "target": target, "position": torch.arange(6)}
    >>> network = {"name": "fast_cnn", "size": 8, "width": 8}
    >>> check_method(lambda: Classify(build(network), Linear(32, 3), CrossEntropy()), batch)
    """

    def make(builder: Callable[[], Method[Any]] = method) -> Method[Any]:
        torch.manual_seed(0)
        return builder().double().train()

    batch = {
        name: value.double() if value.is_floating_point() else value
        for name, value in batch.items()
    }
    image = batch["image"] if "image" in batch else batch["view1"]
    for clock in clocks:
        check_forward(make(), batch, clock)
        check_gradients(make(), batch, clock)
        check_first_order(make(first_order or method), batch, clock)
    check_predictions(make(), image)
    trained = make()
    check_frozen_parts(trained, batch, moving=moving)
    check_deployment(trained, image)  # trained, so that batch-norm has moved


def round_of(method: Method[Any], clock: Clock) -> list[Clock]:
    """The clocks of the round that starts here, or of the last round of training."""
    first = max(0, min(clock.step, clock.steps - method.steps_per_round))
    return [
        Clock(first + i, clock.steps, clock.epoch, clock.epochs)
        for i in range(method.steps_per_round)
    ]


def check_forward(method: Method[Any], batch: Batch, clock: Clock) -> None:
    """Check that `forward` is a function of weights, batch, clock and seed, and writes no state.

    Batch-norm statistics of modules in training mode may move.
    """
    for now in round_of(method, clock):
        before, losses = _state(method), []
        for _ in range(2):
            torch.manual_seed(1)
            losses.append(method(batch, now).loss)
        allowed = _statistics(method)
        written = [
            name
            for name, tensor in _state(method).items()
            if name not in allowed and not torch.equal(tensor, before[name])
        ]
        require(not written, f"forward wrote {written}: move state in after_step")
        require(
            torch.equal(*losses),
            "the same seed gave another loss: draw from torch, numpy or random, which are seeded",
        )


def check_gradients(method: Method[Any], batch: Batch, clock: Clock) -> None:
    """Check that a finite gradient reaches every trainable parameter, over the steps of a round."""
    trainable = {name: p for name, p in method.named_parameters() if p.requires_grad}
    require(trainable, "no parameter is trainable")
    reached: set[str] = set()
    for now in round_of(method, clock):
        method.zero_grad()
        torch.manual_seed(1)
        outcome = method(batch, now)
        require(outcome.loss.isfinite(), f"the loss at step {now.step} is {outcome.loss.item()}")
        outcome.loss.backward()
        gradients = {name: p.grad for name, p in trainable.items() if p.grad is not None}
        broken = [name for name, grad in gradients.items() if not grad.isfinite().all()]
        require(not broken, f"the gradient of {broken} is not finite")
        moved = {name for name, grad in gradients.items() if grad.any()}
        require(moved, f"no gradient reaches any parameter at step {now.step}")
        reached |= moved
    dead = [name for name in trainable if name not in reached]
    require(not dead, f"no gradient reaches {dead}: use them in forward, or freeze them")


def check_first_order(method: Method[Any], batch: Batch, clock: Clock) -> None:
    """Check that a tiny step along the gradient lowers the loss as first order predicts.

    A wrong sign, a detached part or a gradient of another function is caught.
    """
    for now in round_of(method, clock):
        probe = copy.deepcopy(method)
        parameters = [p for p in probe.parameters() if p.requires_grad]
        torch.manual_seed(1)
        before = probe(batch, now).loss
        gradients = torch.autograd.grad(before, parameters, allow_unused=True)
        pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
        size = 1e-7 / float(sum(gradient.square().sum() for _, gradient in pairs))
        with torch.no_grad():
            for parameter, gradient in pairs:
                parameter.sub_(gradient, alpha=size)
        torch.manual_seed(1)
        fell = (before - probe(batch, now).loss).item() / 1e-7
        require(
            abs(fell - 1) <= 0.01,
            f"a step lowered the loss by {fell:.4f} of what first order predicts",
        )


def check_predictions(method: Method[Any], image: Tensor) -> None:
    """Check that the prediction for an image is the same alone as in a batch, in eval mode."""
    method.eval()
    with torch.no_grad():
        together = method.predict(image)
        alone = torch.cat([method.predict(row[None]) for row in image])
    require(
        torch.allclose(together, alone, rtol=1e-9, atol=1e-9),
        "a prediction depends on its neighbours in the batch",
    )


def check_frozen_parts(method: Method[Any], batch: Batch, *, moving: Sequence[str] = ()) -> None:
    """Train some steps; modules that have only frozen parameters stay, buffers included."""
    still = {
        name: module
        for name, module in method.named_modules()
        if any(True for _ in module.parameters())
        and not any(p.requires_grad for p in module.parameters())
        and not any(name == root or name.startswith(f"{root}.") for root in moving)
    }
    before = {name: _state(module) for name, module in still.items()}
    start = _state(method)
    optimizer = torch.optim.SGD(
        [p for p in method.parameters() if p.requires_grad], lr=0.05, momentum=0.9
    )
    steps = max(5, method.steps_per_round)
    method.train()
    for step in range(steps):
        clock = Clock(step, steps, 0, 1)
        optimizer.zero_grad()
        outcome = method(batch, clock)
        outcome.loss.backward()
        optimizer.step()
        method.after_step(outcome, clock)
    moved = [
        f"{name}.{key}"
        for name, module in still.items()
        for key, tensor in _state(module).items()
        if not torch.equal(tensor, before[name][key])
    ]
    require(not moved, f"frozen, but moved: {moved}: wrap it in longtail.nn.Frozen")
    require(
        any(not torch.equal(tensor, start[name]) for name, tensor in _state(method).items()),
        "nothing was trained",
    )


def check_deployment(method: Method[Any], image: Tensor) -> None:
    """Check that `deploy()` and `heads` agree with `predict`, and that the spec rebuilds it."""
    method.eval()
    network: Any = method.deploy().eval()
    with torch.no_grad():
        predicted = method.predict(image)
        require(torch.equal(network(image), predicted), "deploy() is not predict")
        heads = method.heads(image)
        require(
            "logits" in heads and torch.equal(heads["logits"], predicted),
            'heads does not give the predictions of predict as "logits"',
        )
        rebuilt = build(json.loads(json.dumps(network.spec)), trust=True).double().eval()
        rebuilt.load_state_dict(network.state_dict())
        require(
            torch.equal(rebuilt(image), predicted), "the spec does not rebuild what was deployed"
        )


def _state(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer, saved or not."""
    return {
        name: tensor.detach().clone()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def _statistics(module: nn.Module) -> set[str]:
    """Batch-norm buffers of modules in training mode: the only state that `forward` may write."""
    norms = {
        name: norm
        for name, norm in module.named_modules()
        if isinstance(norm, _NormBase) and norm.training
    }
    return {f"{name}.{key}" for name, norm in norms.items() for key, _ in norm.named_buffers()}
