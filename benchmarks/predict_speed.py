"""How much of a network's speed is left when `predict` reads PNG files for it, and how fast
decoding alone is.

    python benchmarks/predict_speed.py [--threads 2] [--images 4096] [--rounds 5]

Run it alone on the machine.

ResNet-32 on 32-pixel PNG files of random pixels. The raw network sees a tensor in memory, in
batches and a layout as `predict` uses them; raw, predict and decoding take turns within one
process, so that a busy neighbour slows all of them. Writes `benchmarks/results/speed/predict.json`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import measured
import numpy as np
import torch
from PIL import Image

from longtail.engine.machine import Machine
from longtail.nn import Linear, build
from longtail.nn.networks import Classifier
from longtail.records.row import Row
from longtail.runs.images import Preprocessing
from longtail.runs.inference import BATCH, read_ahead
from longtail.runs.predicting import Loaded

SIZE = 32


def network(machine: Machine) -> Loaded:
    """As `longtail.load` gives it."""
    torch.manual_seed(0)
    body = build({"name": "resnet32", "size": SIZE})
    made = Classifier(body, Linear(body.dim, 100)).eval().requires_grad_(False)
    machine.place_module(made)
    row: Row = {}  # type: ignore[typeddict-item]
    return Loaded(
        Path(),
        made,
        tuple(map(str, range(100))),
        SIZE,
        row,
        Preprocessing(SIZE, "pad", SIZE),
        None,
        machine,
    )


def files(folder: Path, count: int) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = [folder / f"{number:06}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)).save(path)
    return paths


def seconds(work: Callable[[], None]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    loaded = network(Machine(threads=options.threads))
    memory = loaded.machine.place_batch({"image": torch.rand(BATCH, 3, SIZE, SIZE)})["image"]

    @torch.inference_mode()
    def raw() -> None:
        for first in range(0, options.images, BATCH):
            loaded.network(memory[: options.images - first])

    with tempfile.TemporaryDirectory() as folder:
        paths = files(Path(folder), options.images)

        def predict() -> None:
            answered = sum(len(part.paths) for part in loaded.predict_files(paths))
            assert answered == len(paths)

        def decode() -> None:
            for _ in read_ahead(paths, loaded.preprocessing, machine=loaded.machine):
                pass

        works = {"raw": raw, "predict": predict, "decode": decode}
        times: dict[str, list[float]] = {name: [] for name in works}
        for number in range(options.rounds + 1):
            # Who is first takes turns
            for name, work in list(works.items())[:: 1 if number % 2 else -1]:
                spent = seconds(work)
                if number:  # the first round warms up
                    times[name].append(spent)
    speed = {name: round(options.images / statistics.median(own)) for name, own in times.items()}
    share = statistics.median(a / b for a, b in zip(times["raw"], times["predict"], strict=True))
    figures = {
        "raw network": {"images_per_second": speed["raw"]},
        "predict": {"images_per_second": speed["predict"], "percent_of_raw": round(100 * share, 1)},
        "decoding alone": {"images_per_second": speed["decode"]},
    }
    command = (
        f"python benchmarks/predict_speed.py --threads {options.threads} --images {options.images}"
        f" --rounds {options.rounds}"
    )
    question = (
        "How much of ResNet-32's speed is left when `longtail predict` reads 32-pixel PNG files for"
        " it? (Wanted: 90 percent.)"
    )
    measured.write(
        "predict",
        figures,
        plan="predict",
        question=question,
        command=command,
        threads=options.threads,
    )


if __name__ == "__main__":
    main()
