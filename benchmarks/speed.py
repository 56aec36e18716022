"""What the toolkit costs beside the arithmetic: the loop, the data, the command line, memory.

    python benchmarks/speed.py --root DATA

DATA holds CIFAR-100. Run it alone on the machine.

Loops are compared in interleaved blocks within one process, so that a busy neighbour slows both.
Writes one JSON per question to `benchmarks/results/speed/`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import measured
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome, Stage
from longtail.data.loader import TrainLoader
from longtail.data.open import open_data
from longtail.data.views import CropFlip
from longtail.engine.machine import Machine
from longtail.engine.optim import sgd
from longtail.engine.run import Run
from longtail.engine.session import Session
from longtail.nn import Linear, build


class Plain(Method[Labelled]):
    """Cross entropy on any network, with nothing else that takes time."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        return Outcome({"class": F.cross_entropy(self.network(batch["image"]), batch["target"])})

    def predict(self, image: Tensor) -> Tensor:
        return self.network(image)  # type: ignore[no-any-return]

    def deploy(self) -> nn.Module:
        return self.network


class Repeated:
    """The same batches over and over: what is measured is the loop."""

    def __init__(self, batches: Sequence[Labelled], length: int) -> None:
        self.batches, self.length = batches, length

    def __len__(self) -> int:
        return self.length

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Labelled]:
        for number in range(start, self.length):
            yield self.batches[number % len(self.batches)]


def bare(network: nn.Module, batches: Sequence[Labelled], lr: float) -> Iterator[None]:
    """The loop that anyone would write by hand."""
    optimizer = torch.optim.SGD(
        network.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    network.train()
    number = 0
    while True:
        batch = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(network(batch["image"]), batch["target"]).backward()
        optimizer.step()
        number += 1
        yield


def seconds(advance: Callable[[], Any]) -> float:
    before = time.perf_counter()
    advance()
    return time.perf_counter() - before


def interleaved(
    make: Callable[[], nn.Module],
    batches: Sequence[Labelled],
    *,
    block: int,
    blocks: int,
    machine: Machine,
) -> dict[str, Any]:
    """Seconds a step of the bare loop and of ours, journal, display and checkpoints included, in
    turns.
    """
    torch.manual_seed(0)
    hand, method = make(), Plain(make())
    machine.place_module(hand)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), machine=machine)
        steps = block * (blocks + 1)
        stage = Stage(
            name="s", method=method, data=Repeated(batches, steps), epochs=1, optimizer=sgd(lr=0.01)
        )
        machine.place_module(method)
        session = Session(run._prepare(stage), run.files.stage("s"), save_minutes=10, command="")
        ours, theirs = session.steps(), bare(hand, [machine.place_batch(b) for b in batches], 0.01)
        times: dict[str, list[float]] = {"bare": [], "ours": []}
        for number in range(blocks + 1):
            for name, loop in (("bare", theirs), ("ours", ours)):
                spent = seconds(lambda loop=loop: [*islice(loop, block)]) / block  # type: ignore[misc]
                if number:  # the first block warms up
                    times[name].append(spent)
    extra = [o - b for o, b in zip(times["ours"], times["bare"], strict=True)]
    bare_step, extra_step = statistics.median(times["bare"]), statistics.median(extra)
    return {
        "bare_us": round(1e6 * bare_step, 1),
        "extra_us": round(1e6 * extra_step, 1),
        "extra_percent": round(100 * extra_step / bare_step, 3),
    }


def loop_on_mlp() -> dict[str, Any]:
    batches: list[Any] = [
        {
            "image": torch.randn(32, 64),
            "target": torch.randint(10, (32,)),
            "position": torch.arange(32),
        }
        for _ in range(8)
    ]

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    return interleaved(make, batches, block=500, blocks=20, machine=Machine(threads=1))


def resnet32() -> nn.Module:
    network = build({"name": "resnet32"})
    return nn.Sequential(network, Linear(network.dim, 100))


def loop_on_resnet(threads: int) -> dict[str, Any]:
    batches: list[Any] = [
        {
            "image": torch.rand(128, 3, 32, 32),
            "target": torch.randint(100, (128,)),
            "position": torch.arange(128),
        }
        for _ in range(4)
    ]
    return interleaved(resnet32, batches, block=3, blocks=20, machine=Machine(threads=threads))


def waiting_for_data(root: Path, threads: int) -> dict[str, Any]:
    """The share of a step that passes before its batch is there."""
    data = open_data("cifar100-lt", root=root)
    machine, method, waits, steps = Machine(threads=threads), Plain(resnet32()), [], []
    torch.set_num_threads(threads)
    machine.place_module(method)
    optimizer = sgd(lr=0.01)(method)
    batches = TrainLoader(data.train, view=CropFlip(32), batch=128, seed=0).epoch(0)
    for _ in range(25):
        before = time.perf_counter()
        batch = next(batches)
        got = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        method(machine.place_batch(batch), Clock(0, 1, 0, 1)).loss.backward()
        optimizer.step()
        waits.append(got - before)
        steps.append(time.perf_counter() - before)
    wait, step = statistics.median(waits[5:]), statistics.median(steps[5:])
    return {
        "wait_ms": round(1000 * wait, 2),
        "step_ms": round(1000 * step, 1),
        "wait_percent": round(100 * wait / step, 3),
    }


def command_line() -> dict[str, Any]:
    longtail = str(Path(sys.executable).with_name("longtail"))
    figures = {}
    for words in (["--help"], ["list"]):
        command = partial(subprocess.run, [longtail, *words], capture_output=True, check=True)
        times = [seconds(command) for _ in range(7)]
        figures[" ".join(["longtail", *words])] = {
            "median_s": round(statistics.median(times), 3),
            "best_s": round(min(times), 3),
        }
    return figures


def demo() -> dict[str, Any]:
    longtail = str(Path(sys.executable).with_name("longtail"))
    with tempfile.TemporaryDirectory() as folder:
        spent = seconds(
            lambda: subprocess.run([longtail, "demo"], cwd=folder, capture_output=True, check=True)
        )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 / 1024
    return {"seconds": round(spent, 1), "peak_gib": round(peak, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="where CIFAR-100 is")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", help="a question; may be repeated")
    options = parser.parse_args()
    # First: its peak is read from all children so far
    questions: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        "demo": ("How long does the demo take, and how much memory?", demo),
        "command_line": ("How fast does the command line answer?", command_line),
        "loop_mlp": (
            (
                "What does the loop cost a step, over a bare one, on a tiny MLP (64-64-10, batch"
                " 32, one thread)?"
            ),
            loop_on_mlp,
        ),
        "loop_resnet32": ("And on resnet32, batch 128?", lambda: loop_on_resnet(options.threads)),
        "data_wait": (
            (
                "How much of a resnet32 step (batch 128, CIFAR-100-LT, weak augmentation) waits for"
                " data?"
            ),
            lambda: waiting_for_data(options.root, options.threads),
        ),
    }
    for name, (question, measure) in questions.items():
        if options.only and name not in options.only:
            continue
        figures = measure()
        command = f"python benchmarks/speed.py --root DATA --only {name}"
        measured.write(name, figures, question=question, command=command, threads=options.threads)


if __name__ == "__main__":
    main()
