"""What BatchFormer adds to a training step of the tasks, on images and on features.

    python benchmarks/batchformer_cost.py [--blocks 5] [--only NAME]

Every recipe builds its stage with and without BatchFormer, and their steps take turns in blocks
within one process. Measured is the CPU time of one thread, which a busy machine disturbs little.
Writes `benchmarks/results/speed/batchformer_cost.json`; `--only` prints one case and writes
nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import measured
import numpy as np
import torch

from longtail.core import Clock, Stage
from longtail.data.open import open_data
from longtail.engine.machine import Machine
from longtail.engine.run import Run
from longtail.recipes.signatures import read

CLOCK = Clock(0, 100, 0, 1)
WIDTH = 1280  # of the features
LEAVE = {"test_domain": "sketch"}
ADAPT = {"test_domain": "sketch", "train_domain": "photo", "protocol": "adapt"}
VECTORS = {"network": "vectors"}
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "images: ERM, fast_cnn at 32 pixels": ("erm", "shapes-domains", LEAVE, {"batch": 96}),
    "images: ERM, EfficientNet-Lite0 at 64 pixels": (
        "erm",
        "shapes-domains",
        LEAVE,
        {"batch": 96, "network": "timm:tf_efficientnet_lite0", "size": 64},
    ),
    "images: MDD, fast_cnn at 32 pixels": ("mdd", "shapes-domains", ADAPT, {"bottleneck": 256}),
    "images: CGE, fast_cnn at 32 pixels": ("cge", "shapes-pairs", {}, {"graph_width": 512}),
    "images: CompCos, fast_cnn at 32 pixels": ("compcos", "shapes-pairs", {}, {}),
    "images: MoCo v2, fast_cnn at 32 pixels": ("moco_v2", "shapes-lt", {}, {}),
    "features: ERM, 256 hidden": ("erm", "domains", LEAVE, {**VECTORS, "hidden": 256, "batch": 96}),
    "features: MDD, bottleneck of 256": (
        "mdd",
        "domains",
        ADAPT,
        {**VECTORS, "bottleneck": 256, "head_width": 256},
    ),
    "features: CGE, 512 hidden": ("cge", "pairs", {}, {**VECTORS, "graph_width": 512}),
    "features: CompCos, 512 hidden": ("compcos", "pairs", {}, VECTORS),
    "features: CE-GZSL, 512 hidden": ("ce_gzsl", "classes", {}, {}),
}


class Built(Exception):
    """The first stage of a recipe, which is not trained."""

    def __init__(self, stage: Stage[Any]) -> None:
        super().__init__()
        self.stage = stage


class FirstStage(Run):
    """A run that stops at its first stage."""

    def fit(self, stage: Stage[Any]) -> Any:
        """Raise the stage."""
        raise Built(stage)


def write_features(folder: Path) -> None:
    """Random features with domains, with pairs and with class vectors."""
    rng = np.random.default_rng(0)
    features = rng.random((800, WIDTH), dtype=np.float32)
    target = np.arange(800) % 20
    domains = np.array(["art", "cartoon", "photo", "sketch"])[np.arange(800) // 20 % 4]
    split = np.where(np.arange(800) < 640, "train", np.where(np.arange(800) < 720, "val", "test"))
    for name, unseen in (("val", (0, 6)), ("test", (12, 18))):
        split[np.isin(target, unseen)] = name
    common: dict[str, Any] = {"features": features, "target": target}
    task: dict[str, dict[str, Any]] = {
        "domains": {"column.domain": domains},
        "pairs": {
            "split": split,
            "attribute.attribute": np.array(["red", "old", "wet", "big", "new"])[
                np.arange(20) // 4
            ],
            "attribute.object": np.array(["cat", "car", "cup", "hat"])[np.arange(20) % 4],
        },
        "classes": {"split": split, "attribute.vector": rng.random((20, 300), dtype=np.float32)},
    }
    for name, arrays in task.items():
        np.savez(folder / f"{name}.npz", **common, **arrays)


def stepping(case: str, folder: Path, mode: str, machine: Machine) -> Callable[[], None]:
    """A function that trains one step."""
    recipe, source, flags, keywords = CASES[case]
    path = folder / f"{source}.npz"
    data = open_data(path if path.exists() else source, **flags)
    run = FirstStage(folder / "never", machine=machine, dry="rehearse")
    module, _, function = read(recipe).target.partition(":")
    try:
        getattr(import_module(module), function)(run, data, **keywords, batchformer=mode)
    except Built as built:
        stage = built.stage
    method = stage.method.train()
    machine.place_module(method)
    optimizer = stage.optimizer(method)
    batches = [machine.place_batch(batch) for batch in islice(stage.data.epoch(0), 2)]
    steps = iter(range(1_000_000))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        outcome = method(batches[next(steps) % len(batches)], CLOCK)
        outcome.loss.backward()
        optimizer.step()
        method.after_step(outcome, CLOCK)

    return step


def compared(case: str, folder: Path, *, blocks: int) -> dict[str, float]:
    """Milliseconds of a step without and with BatchFormer, and the ratio: medians over blocks."""
    machine = Machine(threads=1)
    loops = [stepping(case, folder, mode, machine) for mode in ("off", "on")]
    count = 2 if case.startswith("images") else 20
    times: list[list[float]] = [[], []]
    for number in range(blocks + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            before = time.process_time()
            for _ in range(count):
                loops[which]()
            if number:  # the first block warms up
                times[which].append((time.process_time() - before) / count)
    plain, attended = (statistics.median(part) for part in times)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    return {
        "plain, ms": round(1000 * plain, 2),
        "BatchFormer, ms": round(1000 * attended, 2),
        "ratio": round(ratio, 3),
    }


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--only", choices=[*CASES])
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_features(folder)
        if given.only:
            print(compared(given.only, folder, blocks=given.blocks))
            return
        figures = {case: compared(case, folder, blocks=given.blocks) for case in CASES}
    measured.write(
        "batchformer_cost",
        figures,
        plan="batchformer_cost",
        question="What does BatchFormer add to a training step?",
        command=f"python benchmarks/batchformer_cost.py --blocks {given.blocks}",
        threads=1,
    )


if __name__ == "__main__":
    main()
