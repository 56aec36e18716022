"""Time every loss with hard targets, forward and backward, as ratios to torch's cross entropy.

    python benchmarks/loss_speed.py
    python benchmarks/loss_speed.py --classes 8142

All losses take turns within one process, and the fastest of many rounds counts, so that other work
on the machine slows all of them alike. The aim is at most 1.5 times as long as cross entropy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

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

AIM = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logits = (3 * torch.randn(given.batch, given.classes)).requires_grad_()
    target = torch.randint(given.classes, (given.batch,))
    counts = torch.randint(5, 1280, (given.classes,))
    features = torch.randn(given.batch, 64)
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
        "cross entropy": lambda: plain(logits, target),
        "balanced softmax": lambda: balanced(logits, target),
        "binary cross entropy": lambda: binary(logits, target),
        "balanced BCE": lambda: bce(logits, target),
        "class-balanced BCE": lambda: columns(logits, target),
        "LDAM": lambda: ldam(logits, target),
        "LADE": lambda: lade(logits, target),
        "influence-balanced": lambda: influence(logits, target, features=features),
    }
    seconds = fastest(losses, logits, rounds=given.rounds)
    reference = seconds["torch's cross entropy"]
    print(f"batch {given.batch}, {given.classes:,} classes, one thread; aim {AIM}")
    for name, taken in seconds.items():
        print(f"{name:24s}{1e3 * taken:8.3f} ms {taken / reference:6.2f}")


def fastest(
    losses: dict[str, Callable[[], Tensor]], logits: Tensor, *, rounds: int
) -> dict[str, float]:
    """The least seconds of a forward and backward pass of each, taken in turns."""
    seconds = dict.fromkeys(losses, float("inf"))
    for _ in range(rounds):
        for name, loss in losses.items():
            started = time.process_time()
            for _ in range(3):
                logits.grad = None
                loss().backward()
            seconds[name] = min(seconds[name], (time.process_time() - started) / 3)
    return seconds


if __name__ == "__main__":
    main()
