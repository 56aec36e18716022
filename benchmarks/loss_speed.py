"""Time every loss with hard targets, forward and backward, as ratios to torch's cross entropy.

    python benchmarks/loss_speed.py

All losses take turns within one process, and the fastest of many rounds counts, so that other work
on the machine slows all of them alike. LDAM has cosines, which it expects. The aim is at most 1.5
times as long as cross entropy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import measured
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.losses import (
    LADE,
    LDAM,
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    CrossEntropy,
    InfluenceBalanced,
    LogitAdjusted,
)

REASON = """\
Where 1.5 is missed, new memory, small steps and the logarithms count.
Cross entropy is a softmax, its gradient and little else, within torch.
A gradient in closed form costs 0.1 ms however small the batch is, in some thirty small steps and \
calls of Python: half of a cross entropy with 1,000 classes.
The binary losses also need a sigmoid, products of 32 to 64 of them for one logarithm, and a \
sum of the positive logits; torch's own, with a logarithm for each logit, takes twice a cross \
entropy.
Products of pairs are faster, but drop the squares of small probabilities: 4e-6 of the loss with \
8,142 classes.
LADE needs the sum of exp(x) over the batch for each class, and its gradient has two terms for \
each logit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, nargs="+", default=[1000, 8142])
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, object] = {}
    for classes in given.classes:
        seconds = measure(given.batch, classes, rounds=given.rounds)
        reference = seconds["torch's cross entropy"]
        figures[f"{classes} classes, ms of torch's cross entropy"] = round(1e3 * reference, 3)
        for name, taken in seconds.items():
            print(f"{classes:,} classes  {name:28s}{1e3 * taken:8.3f} ms {taken / reference:6.2f}")
            figures[f"{classes} classes, {name}"] = round(taken / reference, 2)
    measured.write(
        "losses",
        figures,
        question="How long do forward and backward pass of a loss with hard targets take, in"
        " cross entropies, at batch 256? The aim is at most 1.5.",
        command="python benchmarks/loss_speed.py",
        reason=REASON,
        threads=1,
    )


def measure(batch: int, classes: int, *, rounds: int) -> dict[str, float]:
    """The least seconds of each loss."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(batch, classes)).requires_grad_()
    cosines = (0.3 * torch.randn(batch, classes)).clamp(-1, 1).requires_grad_()
    target = torch.randint(classes, (batch,))
    counts = torch.randint(5, 1280, (classes,))
    features = torch.randn(batch, 64)
    dense = F.one_hot(target, classes).float()
    balanced, bce, ldam, lade = (
        LogitAdjusted(counts),
        BalancedBCE(counts),
        LDAM(counts),
        LADE(counts),
    )
    influence, plain, binary = InfluenceBalanced(counts), CrossEntropy(), BinaryCrossEntropy()
    columns = ClassBalancedBCE(counts)
    losses: dict[str, Callable[[], Tensor]] = {
        "torch's cross entropy": lambda: F.cross_entropy(logits, target),
        "torch's binary cross entropy": lambda: F.binary_cross_entropy_with_logits(logits, dense),
        "cross entropy": lambda: plain(logits, target),
        "balanced softmax": lambda: balanced(logits, target),
        "binary cross entropy": lambda: binary(logits, target),
        "balanced BCE": lambda: bce(logits, target),
        "class-balanced BCE": lambda: columns(logits, target),
        "LDAM": lambda: ldam(cosines, target),
        "LADE": lambda: lade(logits, target),
        "influence-balanced": lambda: influence(logits, target, features=features),
    }
    return fastest(losses, logits, cosines, rounds=rounds)


def fastest(
    losses: dict[str, Callable[[], Tensor]], logits: Tensor, cosines: Tensor, *, rounds: int
) -> dict[str, float]:
    """The least seconds of a forward and backward pass of each, taken in turns.

    A pass before those that count finds the memory and the caches as the last loss left them.
    """
    seconds = dict.fromkeys(losses, float("inf"))
    for _ in range(rounds):
        for name, loss in losses.items():
            for repeat in range(4):
                if repeat == 1:
                    started = time.process_time()
                logits.grad = cosines.grad = None
                loss().backward()
            seconds[name] = min(seconds[name], (time.process_time() - started) / 3)
    return seconds


if __name__ == "__main__":
    main()
