"""What BatchFormer adds to a training step of ResNet-32, and to inference.

    python benchmarks/batchformer_speed.py [--threads 2] [--blocks 20]

Run it alone on the machine.

Steps with and without it take turns in blocks within one process, so that a busy neighbour slows
both. Writes `benchmarks/results/speed/batchformer.json`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import measured
import torch

from longtail.core import Clock, Labelled
from longtail.engine.machine import Machine
from longtail.engine.optim import sgd
from longtail.losses import LogitAdjusted
from longtail.methods import Classify
from longtail.nn import Linear, build
from longtail.recipes.batchformer import Mode, batchformer_neck, lr_scales

CLOCK = Clock(0, 1, 0, 1)


def method(use: Mode, machine: Machine) -> Classify:
    """As `balanced_softmax --network resnet32` makes it; one seed, one network."""
    torch.manual_seed(0)
    network = build({"name": "resnet32"})
    head = Linear(network.dim, 100)
    made = Classify(
        network,
        head,
        LogitAdjusted(torch.arange(100, 0, -1)),
        neck=batchformer_neck(network.dim, use),
    )
    machine.place_module(made)
    return made


def stepping(made: Classify, batches: list[Labelled]) -> Callable[[int], None]:
    """A function that trains a number of steps."""
    optimizer = sgd(lr=0.01, scales=lr_scales(made.neck, 0.1))(made)
    made.train()

    def steps(count: int) -> None:
        for number in range(count):
            optimizer.zero_grad(set_to_none=True)
            made(batches[number % len(batches)], CLOCK).loss.backward()
            optimizer.step()

    return steps


def asking(made: Classify, batches: list[Labelled]) -> Callable[[int], None]:
    """A function that asks a number of times."""
    network = made.deploy().eval()

    @torch.no_grad()
    def ask(count: int) -> None:
        for number in range(count):
            network(batches[number % len(batches)]["image"])

    return ask


def in_turns(loops: dict[str, Callable[[int], None]], *, block: int, blocks: int) -> dict[str, Any]:
    """Milliseconds of each, and what the second adds to the first: the median over blocks of the
    difference.
    """
    times: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(blocks + 1):
        # Who is first takes turns, too
        for name, loop in list(loops.items())[:: 1 if number % 2 else -1]:
            before = time.perf_counter()
            loop(block)
            if number:  # the first block warms up
                times[name].append((time.perf_counter() - before) / block)
    first, second = times.values()
    added = statistics.median(b - a for a, b in zip(first, second, strict=True))
    shown = {f"{name}_ms": round(1000 * statistics.median(item), 2) for name, item in times.items()}
    return {
        **shown,
        "added_ms": round(1000 * added, 3),
        "added_percent": round(100 * added / statistics.median(first), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    machine = Machine(threads=options.threads)
    generator = torch.Generator().manual_seed(0)
    batches: list[Any] = [
        machine.place_batch(
            {
                "image": torch.rand(128, 3, 32, 32, generator=generator),
                "target": torch.randint(100, (128,), generator=generator),
            }
        )
        for _ in range(4)
    ]
    plain, attended = method("off", machine), method("on", machine)
    with torch.no_grad():
        equal = torch.equal(
            *(item.eval().predict(batches[0]["image"]) for item in (plain, attended))
        )
    figures = {
        "training_step": in_turns(
            {"plain": stepping(plain, batches), "batchformer": stepping(attended, batches)},
            block=3,
            blocks=options.blocks,
        ),
        "inference": in_turns(
            {"plain": asking(plain, batches), "batchformer": asking(attended, batches)},
            block=5,
            blocks=options.blocks,
        ),
        "inference_equal_to_the_bit": equal,
    }
    question = (
        "What does BatchFormer add to a training step of ResNet-32 (batch 128, 100 classes), and to"
        " inference?"
    )
    command = (
        f"python benchmarks/batchformer_speed.py --threads {options.threads}"
        f" --blocks {options.blocks}"
    )
    measured.write(
        "batchformer",
        figures,
        plan="batchformer",
        question=question,
        command=command,
        threads=options.threads,
    )


if __name__ == "__main__":
    main()
