"""What a teacher costs a student's step: alive, and remembered.

    python benchmarks/deit_lt_speed.py [--threads 2]       # run it alone on the machine

Steps of the same student take turns within one process, so that a busy neighbour slows all of them:
with classes that cost nothing, with those of the store, and with those of a living teacher. Whole
steps differ by more than a reading of the store takes, so that is timed by itself too
(`remembered_ms`, median of a batch, and its share of a step). Large networks are counted and not
run: the forward pass of the teacher over the three times as expensive step of the student. Writes
`benchmarks/results/speed/deit_lt_speed.json`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import measured
import torch
from torch.utils.flop_counter import FlopCounterMode

from longtail.core import BatchTransform, Clock, Stage
from longtail.data.label_cache import CachedTeacherLabels, LabelFile
from longtail.data.mixing import MixupCutMix
from longtail.data.teacher_labels import AddTeacherLabels, Compose
from longtail.engine.fit import train
from longtail.engine.machine import Machine
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.losses import CrossEntropy
from longtail.methods import DistillTokens
from longtail.nn import Classifier, Cosine, Teacher, TokenHeads, build

BATCH, CLASSES = 128, 10


class Batches:
    """The same few batches over and over, with draws that go on."""

    def __init__(self, steps: int) -> None:
        torch.manual_seed(0)
        self.images, self.steps = [torch.rand(BATCH, 3, 32, 32) for _ in range(4)], steps

    def __len__(self) -> int:
        return self.steps

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Any]:
        for number in range(start, self.steps):
            draw = torch.arange(number * BATCH, (number + 1) * BATCH)
            yield {
                "image": self.images[number % 4],
                "target": draw % CLASSES,
                "position": draw,
                "index": draw,
            }


def free(batch: Any, clock: Clock) -> Any:
    """Classes that nobody is asked for."""
    return {**batch, "teacher_target": batch["position"] % CLASSES}


def timed(transform: BatchTransform, seconds: list[float]) -> BatchTransform:
    """The same transform, which notes how long each batch took."""

    def noted(batch: Any, clock: Clock) -> Any:
        before = time.perf_counter()
        changed = transform(batch, clock)
        seconds.append(time.perf_counter() - before)
        return changed

    return noted


def turns(
    student: str, teacher: str, *, block: int, blocks: int, machine: Machine
) -> dict[str, Any]:
    steps = block * (blocks + 1)
    backbone = build({"name": teacher, "size": 32})
    labelled = AddTeacherLabels(
        Teacher(Classifier(backbone, Cosine(backbone.dim, CLASSES)), size=32)
    )
    machine.place_module(labelled.teacher)  # type: ignore[arg-type]
    times: dict[str, list[float]] = {"free": [], "remembered": [], "alive": []}
    reading: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store = LabelFile(
            Path(folder) / "labels.bin", epochs=1, draws=steps * BATCH, classes=CLASSES
        )
        every = torch.arange(steps * BATCH)
        store.write(0, every, every % CLASSES)
        kinds: dict[str, BatchTransform] = {
            "free": free,
            "remembered": timed(CachedTeacherLabels(labelled, store), reading),
            "alive": labelled,
        }
        loops = {}
        for kind, transform in kinds.items():
            torch.manual_seed(0)
            network = build({"name": student, "size": 32, "pool": "tokens"})
            method = DistillTokens(
                network, TokenHeads(network.dim, CLASSES), CrossEntropy(smoothing=0.1)
            )
            machine.place_module(method)
            mix = Compose(MixupCutMix(classes=CLASSES), transform)
            stage = Stage(
                name=kind,
                method=method,
                data=Batches(steps),
                epochs=1,
                optimizer=adamw(lr=1e-4),
                mix=mix,
            )
            loops[kind] = train(Run(Path(folder), machine=machine)._prepare(stage))
        for number in range(blocks + 1):
            for kind, loop in loops.items():
                before = time.perf_counter()
                assert len([*islice(loop, block)]) == block
                if number:  # the first block warms up
                    times[kind].append((time.perf_counter() - before) / block)
    step = statistics.median(times["free"])
    over = {
        kind: statistics.median(o / f - 1 for o, f in zip(times[kind], times["free"], strict=True))
        for kind in ("remembered", "alive")
    }
    read = statistics.median(reading)
    figures = {"step_ms": round(1000 * step, 1), "remembered_ms": round(1000 * read, 3)}
    figures["remembered_share_percent"] = round(100 * read / step, 3)
    return figures | {f"{kind}_over_percent": round(100 * value, 2) for kind, value in over.items()}


def counted(student: dict[str, Any], teacher: dict[str, Any]) -> dict[str, Any]:
    """The living teacher's share of a step by floating point operations, of which a step has three
    of the student's forward passes.
    """
    flops = {}
    for name, spec in (("student", student), ("teacher", teacher)):
        network = build(spec).train(name == "student")
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.zeros(1, 3, spec["size"], spec["size"]))
        flops[name] = counter.get_total_flops()
    return {
        "student_gflop": round(flops["student"] / 1e9, 2),
        "teacher_gflop": round(flops["teacher"] / 1e9, 2),
        "alive_over_percent": round(100 * flops["teacher"] / (3 * flops["student"]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--block", type=int, default=2, help="steps in a turn")
    parser.add_argument("--blocks", type=int, default=15, help="turns of each")
    options = parser.parse_args()
    machine = replace(Machine(), threads=options.threads)
    figures: dict[str, Any] = {
        f"{student}, {teacher} teacher": turns(
            student, teacher, block=options.block, blocks=options.blocks, machine=machine
        )
        for student in ("vit_mini", "vit_tiny")
        for teacher in ("fast_cnn", "resnet32")
    }
    for size in ("tiny", "small", "base"):
        student = {"name": f"timm:deit_{size}_distilled_patch16_224", "size": 224, "pool": "tokens"}
        figures[f"counted: deit_{size} at 224, resnet50 teacher"] = counted(
            student, {"name": "timm:resnet50", "size": 224}
        )
    question = (
        "What does a teacher cost a step of its student (batch 128), over the same step with"
        " classes that cost nothing?"
    )
    command = (
        f"python benchmarks/deit_lt_speed.py --threads {options.threads} --block {options.block}"
        f" --blocks {options.blocks}"
    )
    measured.write(
        "deit_lt_speed",
        figures,
        plan="deit_lt_speed",
        question=question,
        command=command,
        threads=options.threads,
    )


if __name__ == "__main__":
    main()
