"""What every loss `(logits, target, *, weight, rows, features) -> scalar` must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.testing.requiring import require

Row = list[float]
COUNTS = (50, 20, 5, 2)
WEIGHT = (0.1, 1.0, 2.0, 5.0)
ROWS = (0.0, 1.0, 2.0, 0.5, 1.0, 3.0)


def check_loss(
    loss: Callable[[Tensor], nn.Module],
    *,
    reference: Callable[[Row, Row, int], float] | None = None,
    batch_term: Callable[[list[Row], list[Row]], float] | None = None,
    uniform: Callable[[Tensor, Tensor], Tensor] | None = None,
    features: int | None = None,
    uses_counts: bool = True,
) -> None:
    """Check that a loss treats targets, class weights and row weights like those of longtail.

    It catches:

    - hard targets that are not the same as their one-hot rows;
    - a mean over rows that class weights or row weights enter wrongly;
    - losses or gradients that are not finite, or not float32, for large logits in half precision;
    - losses or gradients that are not finite where a logit of another class is masked with -inf;
    - a gradient that is not that of the loss;
    - targets that are no class, and logits of another number of classes, that are not refused;
    - a signature without `weight`, `rows` or `features`;
    - values that are not those of `reference` or `uniform`, where given.

    Args:
        loss: builds the loss from training counts (C,), such as `LDAM`; of a loss without counts,
            `lambda counts: MyLoss()`.
        reference: a slow implementation: (logits of a row, target distribution of the row, class)
            to the row's loss if it were of that class. The loss is then the mean over rows of the
            target's share of each class times weight times this, divided by
            the sum of shares times weights.
        batch_term: a term over the batch outside that mean: (logits, targets) to a number.
        uniform: what the loss is for equal counts: (logits (N, C), targets (N, C)) to a scalar.
        features: the width of the features (N, width) that the loss needs; None if it needs none.
        uses_counts: whether the loss has a number of classes, and raises for another.

    >>> from longtail.losses import CrossEntropy, LogitAdjusted
    >>> check_loss(LogitAdjusted)
    >>> check_loss(lambda counts: CrossEntropy(), uniform=F.cross_entropy, uses_counts=False)
    """
    made, counts = loss(torch.tensor(COUNTS)), torch.tensor(COUNTS)

    def value(logits: Tensor, target: Tensor, *, module: nn.Module = made, **more: Any) -> Tensor:
        if features is not None:
            more.setdefault("features", torch.ones(len(logits), features))
        try:
            result: Tensor = module(logits, target, **more)
        except TypeError as error:
            names = ", ".join(("logits", "target", *more))
            raise AssertionError(f"the loss does not take ({names}): {error}") from error
        require(
            isinstance(result, Tensor) and result.ndim == 0,
            f"expected a loss of one number, got {result!r:.80}",
        )
        return result

    logits, hard, soft = _examples()
    onehot = F.one_hot(hard, len(COUNTS)).double()
    weight, rows = torch.tensor(WEIGHT).double(), torch.tensor(ROWS).double()

    cases: list[dict[str, Any]] = [{}, {"weight": weight}, {"weight": weight, "rows": rows}]
    for weights in cases:
        same = torch.allclose(value(logits, hard, **weights), value(logits, onehot, **weights))
        named = f" with {' and '.join(weights)}" if weights else ""
        require(same, f"a hard target is not the same as its one-hot row{named}")
    for target in (hard, soft):
        plain = value(logits, target)
        require(
            torch.allclose(value(logits, target, rows=torch.ones(6).double()), plain),
            "row weights of 1 change the loss",
        )
        require(
            torch.allclose(value(logits, target, weight=torch.ones(4).double()), plain),
            "class weights of 1 change the loss",
        )
        require(
            torch.allclose(
                value(logits, target, weight=3 * weight), value(logits, target, weight=weight)
            ),
            "class weights are not relative: three times the same weights change the loss",
        )
    if features is None:
        require(
            torch.equal(value(logits, hard, features=torch.randn(6, 3)), value(logits, hard)),
            "features change the loss: pass their width as features=",
        )
    _check_gradient(lambda rows_: value(rows_, soft), logits)
    _check_extremes(value)
    _check_masked(value)
    _check_refusals(value, hard, uses_counts=uses_counts)
    if reference is not None:
        for target in (hard, soft):
            full = onehot if target is hard else target
            for w, r in ((None, None), (weight, None), (None, rows), (weight, rows)):
                slow = _slow_mean(reference, logits, full, w, r)
                slow += batch_term(logits.tolist(), full.tolist()) if batch_term else 0.0
                fast = value(logits, target, weight=w, rows=r).item()
                require(
                    abs(fast - slow) <= 1e-5 * abs(slow),
                    f"the reference gives {slow:.6g}, the loss {fast:.6g}"
                    f"{' with class weights' * (w is not None)}"
                    f"{' with row weights' * (r is not None)}",
                )
    if uniform is not None:
        equal = loss(torch.full_like(counts, 7))
        for target, full in ((hard, onehot), (soft, soft)):
            got, expected = value(logits, target, module=equal), uniform(logits, full)
            require(
                torch.allclose(got, expected, atol=1e-6),
                f"with equal counts it is {got:.6g} instead of {expected:.6g}",
            )


def _examples() -> tuple[Tensor, Tensor, Tensor]:
    """Logits (6, 4), hard targets (6,) and soft targets (6, 4), in double precision."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    soft = torch.randn(6, 4, dtype=torch.float64, generator=generator).mul(3).softmax(1)
    return logits, torch.tensor([0, 0, 0, 1, 2, 3]), soft


def _slow_mean(
    reference: Callable[[Row, Row, int], float],
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    rows: Tensor | None,
) -> float:
    weights: Sequence[float] = [1.0] * len(COUNTS) if weight is None else weight.tolist()
    factors: Sequence[float] = [1.0] * len(logits) if rows is None else rows.tolist()
    above = below = 0.0
    for z, t, factor in zip(logits.tolist(), target.tolist(), factors, strict=True):
        for c, share in enumerate(t):
            above += factor * weights[c] * share * reference(z, t, c)
            below += weights[c] * share
    return above / below


def _check_gradient(value: Callable[[Tensor], Tensor], logits: Tensor) -> None:
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf)
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(logits.shape, dtype=logits.dtype, generator=generator)
    step = 1e-6 * direction
    measured = float(value(logits + step) - value(logits - step)) / 2e-6
    predicted = float((gradient * direction).sum())
    require(
        abs(measured - predicted) <= 1e-4 * max(1.0, abs(measured)),
        f"the slope by the gradient is {predicted:.6g}, measured on the loss it is {measured:.6g}",
    )


def _check_extremes(value: Callable[..., Tensor]) -> None:
    soft = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.1, 0.9]])
    for dtype in (torch.float16, torch.float32):
        for size in (1e4, 3e4):
            rows = [[size, -size, 0.0, size], [-size, -size, -size, size]]
            logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
            for target in (torch.tensor([1, 0]), soft):
                result = value(logits, target)
                (gradient,) = torch.autograd.grad(result, logits)
                where = f"for logits of {size:g} in {dtype}"
                require(
                    result.dtype == torch.float32,
                    f"the loss is {result.dtype} instead of float32 {where}",
                )
                require(result.isfinite(), f"the loss is {result.item()} {where}")
                require(gradient.isfinite().all(), f"the gradient is not finite {where}")


def _check_masked(value: Callable[..., Tensor]) -> None:
    soft = torch.tensor([[0.3, 0.7, 0.0, 0.0], [0.9, 0.1, 0.0, 0.0]])
    rows = {"one row": [[0.0, 1.0, 2.0, 3.0], [3.0, 1.0, -torch.inf, 0.0]]}
    rows["all rows"] = [[0.0, 1.0, -torch.inf, 3.0], [3.0, 1.0, -torch.inf, 0.0]]
    for which, numbers in rows.items():
        for target in (torch.tensor([1, 0]), soft):
            logits = torch.tensor(numbers, requires_grad=True)
            result = value(logits, target)
            (gradient,) = torch.autograd.grad(result, logits)
            where = f"where a class that no target has is masked with -inf in {which}"
            require(result.isfinite(), f"the loss is {result.item()} {where}")
            require(gradient.isfinite().all(), f"the gradient is not finite {where}")


def _check_refusals(value: Callable[..., Tensor], hard: Tensor, *, uses_counts: bool) -> None:
    logits, _, _ = _examples()
    cases = {"targets that are no class are not refused": (logits, hard + 1)}
    if uses_counts:
        for classes in (1, 3, 5):
            message = f"logits of {classes} classes are not refused by a loss for 4"
            cases[message] = (torch.zeros(2, classes), torch.tensor([0, 0]))
    for message, (rows, target) in cases.items():
        try:
            value(rows, target)
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(
                f"{message} with a ValueError, but with a {type(error).__name__}: {error}"
            ) from error
        raise AssertionError(message)
