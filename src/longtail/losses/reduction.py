"""What all losses have in common: hard and soft targets, class weights, row weights.

A loss is `(logits, target, *, weight=None, rows=None, features=None) -> scalar`. `target` holds
class indices (N,) or class distributions (N, C). With l_ic the loss of row i if its class were c,
and t_ic its target distribution, the result is

    sum(rows_i * weight_c * t_ic * l_ic) / sum(weight_c * t_ic)

so `weight` (C,) gives a weighted mean, which is the same for a hard target and its one-hot row, and
does not change the scale of the loss. `rows` (N,) are factors that do: they are not normalised, so
rows of 1 change nothing, and rows of 2 double the loss.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.errors import LongtailError


def at_least_float32(logits: Tensor) -> Tensor:
    """Cast logits to at least float32: half precision is too coarse to sum exponentials."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def to_soft_targets(target: Tensor, logits: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Turn a target into class distributions (N, C) of the logits' dtype.

    `smoothing` is the share that is spread evenly over all classes.

    >>> to_soft_targets(torch.tensor([1]), torch.zeros(1, 2), smoothing=0.5).tolist()
    [[0.25, 0.75]]
    """
    check_smoothing(smoothing)
    classes = logits.shape[1]
    if target.ndim == 1 and len(target) == len(logits):
        if target.dtype != torch.int64:
            raise _invalid_target(target, classes)
        try:
            # Not F.one_hot, which `torch.func.vmap` does not support
            target = torch.zeros_like(logits).scatter(1, target[:, None], 1.0)
        # Torch checks the values on a CPU only, where it needs no synchronisation
        except RuntimeError as error:
            raise _invalid_target(target, classes) from error
    elif target.shape != logits.shape:
        expected = f"({len(logits)},) or {tuple(logits.shape)}"
        raise LongtailError(
            f"expected a target of shape {expected} for logits {tuple(logits.shape)}, got"
            f" {tuple(target.shape)}"
        )
    target = target.to(logits.dtype)
    return target if smoothing == 0 else (1 - smoothing) * target + smoothing / classes


def is_hard(target: Tensor, logits: Tensor) -> bool:
    """Whether a target holds class indices (N,), which then are classes of the logits.

    >>> is_hard(torch.tensor([1, 0]), torch.zeros(2, 2)), is_hard(torch.eye(2), torch.zeros(2, 2))
    (True, False)
    """
    if target.ndim != 1 or len(target) != len(logits):
        return False
    if target.dtype != torch.int64:
        raise _invalid_target(target, logits.shape[1])
    try:  # torch checks the values on a CPU only, where it needs no synchronisation
        logits.detach().gather(1, target[:, None])
    except RuntimeError as error:
        raise _invalid_target(target, logits.shape[1]) from error
    return True


def row_factors(
    target: Tensor, logits: Tensor, *, weight: Tensor | None, rows: Tensor | None
) -> Tensor:
    """The factors (N,) by which the losses of rows with hard targets are summed: the formula above.

    >>> row_factors(torch.tensor([0, 1]), torch.zeros(2, 2), weight=None, rows=None)
    tensor([0.5000, 0.5000])
    """
    _check_factors(len(logits), logits.shape[1], weight=weight, rows=rows)
    if weight is None:
        factors = logits.new_full((len(logits),), 1 / max(len(logits), 1))
    else:
        chosen = weight.to(logits.dtype)[target]
        factors = chosen / chosen.sum()
    return factors if rows is None else factors * rows.to(factors.dtype)


def with_gradient(
    logits: Tensor, value: Tensor, shares: Tensor, *, slope: Tensor, target: Tensor, drop: Tensor
) -> Tensor:
    """Return `value` as a function of the logits that has a gradient (N, C) in closed form.

    The gradient of row i is slope_i * shares_i, less drop_i at its target. For losses of hard
    targets: autograd would need several passes more. It cannot be differentiated twice.
    """
    return _WithGradient.apply(  # type: ignore[no-any-return]
        logits, value, shares, slope[:, None], target[:, None], drop[:, None]
    )


class _WithGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, value: Tensor, *of_gradient: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        shares, slope, target, drop = ctx.saved_tensors
        gradient = shares * (slope * upstream)  # one pass; the other factors are (N, 1)
        return gradient.scatter_add_(1, target, drop * -upstream), None, None, None, None, None


def _check_factors(
    rows_of_logits: int, classes: int, *, weight: Tensor | None, rows: Tensor | None
) -> None:
    if weight is not None and weight.shape != (classes,):
        raise LongtailError(
            f"expected one weight for each of {classes} classes, got shape {tuple(weight.shape)}"
        )
    if rows is not None and rows.shape != (rows_of_logits,):
        raise LongtailError(
            f"expected one factor for each of {rows_of_logits} rows, got shape {tuple(rows.shape)}"
        )


def _invalid_target(target: Tensor, classes: int) -> LongtailError:
    got = f"{target.min().item()} to {target.max().item()} as {target.dtype}"
    return LongtailError(
        f"expected targets 0 to {classes - 1} as int64 for logits of {classes} classes, got {got}"
    )


def weighted_mean(
    losses: Tensor, target: Tensor, *, weight: Tensor | None, rows: Tensor | None
) -> Tensor:
    """The formula above, for losses (N, C), or (N, 1) if a row's loss does not depend on its class.

    >>> losses, target = torch.tensor([[1.0], [3.0]]), torch.eye(2)
    >>> weighted_mean(losses, target, weight=None, rows=None)
    tensor(2.)
    >>> weighted_mean(losses, target, weight=torch.tensor([3.0, 1.0]), rows=None)
    tensor(1.5000)
    """
    _check_factors(len(target), target.shape[1], weight=weight, rows=rows)
    if weight is not None:
        target = target * weight
    # A class with no share in the target must not enter the loss, even where its loss is infinite:
    # its logit may be masked with -inf.
    per_row = (target * losses.where(target != 0, 0.0)).sum(1)
    if rows is not None:
        per_row = per_row * rows
    return per_row.sum() / target.sum()


def prior(counts: Tensor) -> Tensor:
    """The share of each class in training, as float64; every class must have an image.

    >>> prior(torch.tensor([3, 1])).tolist()
    [0.75, 0.25]
    """
    if not isinstance(counts, Tensor):
        raise LongtailError(
            f"expected counts as a tensor, got a {type(counts).__name__}: pass torch.tensor(counts)"
        )
    if counts.ndim != 1 or len(counts) < 2:
        raise LongtailError(
            f"expected counts (C,) of at least two classes, got shape {tuple(counts.shape)}"
        )
    empty = (~(counts > 0)).nonzero().flatten().tolist()
    if empty:
        raise LongtailError(
            f"every class needs training images, got none in class {', '.join(map(str, empty))}:"
            " remove such classes"
        )
    return counts.double() / counts.double().sum()


def check_classes(logits: Tensor, per_class: Tensor) -> None:
    """Require logits (N, C) for a loss that has one number `per_class` (C,)."""
    if logits.shape[1:] != per_class.shape:
        raise LongtailError(
            f"expected logits (N, {len(per_class)}), as the loss was given counts of"
            f" {len(per_class)} classes, got {tuple(logits.shape)}"
        )


def check_smoothing(smoothing: float) -> None:
    """Require a smoothing in [0, 1)."""
    if not 0 <= smoothing < 1:
        raise LongtailError(f"expected a smoothing in [0, 1), got {smoothing}")


def check_tau(tau: float) -> None:
    """Require a finite tau."""
    if not math.isfinite(tau):
        raise LongtailError(
            f"expected a finite tau, got {tau}: 1 applies the full prior, 0 none of it"
        )
