"""The share of Muon in a training step of fast_vit with both tokens, on one thread.

    python benchmarks/muon_speed.py

Forward and backward pass and the optimizer's step take turns within one process, and the fastest of
many rounds counts for each, in seconds of the processor, so that other work on the machine matters
little. AdamW alone is measured beside it, and Muon with one orthogonalisation for each matrix
instead of one for all of a shape. The aim is at most 8% of a step at batch 128.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import measured
import torch
from torch import Tensor
from torch.optim import Optimizer

from longtail.core import Clock
from longtail.engine import muon as module
from longtail.engine.muon import muon
from longtail.engine.optim import adamw
from longtail.losses import CrossEntropy
from longtail.methods import DistillTokens
from longtail.nn import TokenHeads, build

CLASSES = 10
REASON = """\
The aim is not reached: five steps for the matrices of fast_vit are 7.1 GFLOP, forward and \
backward pass 36.5, and both run at the speed of large matrix products.
All else in Muon is 3% of its time.
Steps on the inner products alone, x x' and what multiplies it, save a fifth, but rounding grew \
fourfold with nearly singular matrices: two processes were no longer one to 1e-6.
Half of each symmetric product saves 5%, and four steps instead of five after a tighter norm a \
fifth, which would be another method."""


together = module.orthogonalise


def one_by_one(matrices: Tensor, *, steps: int = 5) -> Tensor:
    """`orthogonalise` for one matrix after the other."""
    return torch.cat([together(matrix[None], steps=steps) for matrix in matrices])


ways = {"muon": together, "muon, one matrix at a time": one_by_one}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = build({"name": "fast_vit", "size": 32, "pool": "tokens"})
    method = DistillTokens(network, TokenHeads(network.dim, CLASSES), CrossEntropy()).train()
    batch = {
        "image": torch.rand(given.batch, 3, 32, 32),
        "target": torch.randint(CLASSES, (given.batch,)),
        "teacher_target": torch.randint(CLASSES, (given.batch,)),
        "position": torch.arange(given.batch),
    }

    def passes() -> None:
        method.zero_grad()
        method(batch, Clock(0, 1, 0, 1)).loss.backward()

    passes()
    optimizers: dict[str, Optimizer] = {
        "adamw": adamw(lr=1e-3, weight_decay=0.05)(method),
        **{name: muon()(method) for name in ways},
    }

    def step(name: str) -> Callable[[], None]:
        def run() -> None:
            module.orthogonalise = ways.get(name, together)
            optimizers[name].step()

        return run

    parts = {"passes": passes, **{name: step(name) for name in optimizers}}
    seconds = fastest(parts, rounds=given.rounds)
    figures = {
        f"{name}, % of a step": round(100 * seconds[name] / (seconds["passes"] + seconds[name]), 1)
        for name in optimizers
    }
    figures |= {f"{name}, ms": round(1e3 * taken, 1) for name, taken in seconds.items()}
    measured.write(
        "muon_step",
        figures,
        question="How much of a step of fast_vit at batch 128 is Muon's? The aim is at most 8%.",
        command="python benchmarks/muon_speed.py",
        reason=REASON,
        threads=1,
    )


def fastest(parts: dict[str, Callable[[], None]], *, rounds: int) -> dict[str, float]:
    """The least seconds of the processor of each part, taken in turns."""
    seconds = dict.fromkeys(parts, float("inf"))
    for _ in range(rounds):
        for name, part in parts.items():
            started = time.process_time()
            part()
            seconds[name] = min(seconds[name], time.process_time() - started)
    return seconds


if __name__ == "__main__":
    main()
