"""Kill every recipe again and again, resume it, and compare with an uninterrupted run to the bit.

    python benchmarks/chaos.py [RECIPE ...] [--kills 6] [--workers 1] [--work FOLDER]

A recipe is trained once without interruption, which also counts its file operations: files opened
for writing, renamed and removed, and folders made. Then it is trained again, and killed with
SIGKILL in the middle of some of these operations, and at random moments, in turn; after each kill
the same command resumes it. Journals, weights, predictions and scores must be equal in the end.
Every second start uses `--workers`. The seed of the moments is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longtail.engine.journal import Journal
from longtail.recipes import RECIPES
from longtail.records.files import read_lines

# What makes a recipe a matter of seconds, and data that it accepts.
QUICK = ("--threads", "1", "--device", "cpu", "--save-every", "0")
TRAINED = ("--epochs", "2", "--batch", "64")
SETTINGS: dict[str, tuple[str, ...]] = {
    "ride": ("--defer", "0.5"),
    "paco": ("--queue", "128"),
    "livt": ("--pretrain-epochs", "2"),
    "masked_autoencoder": ("--probe-epochs", "1"),
    "deit_lt": ("--teacher-epochs", "2"),
    "deit": ("--teacher-epochs", "2"),
    "moco_v2": ("--queue", "128", "--probe-epochs", "1"),
    "moco_v3": ("--hidden", "32", "--probe-epochs", "1"),
    **dict.fromkeys(
        ("erm", "coral", "irm", "vrex", "mixstyle", "swad"),
        # Batches of three domains with equally many images
        ("--data", "shapes-domains", "--test-domain", "sketch", "--batch", "63"),
    ),
    "mdd": ("--data", "shapes-domains", "--test-domain", "sketch", "--protocol", "adapt"),
    **dict.fromkeys(("cge", "compcos", "attribute_object"), ("--data", "shapes-pairs")),
}

VECTORS: dict[str, tuple[str, ...]] = {
    "ce_gzsl": (*TRAINED, "--generator", "32", "--critic", "32", "--synthetic", "20"),
    "eszsl": (),
}
"""Recipes for feature vectors of unseen classes, of which no set is made in memory."""

# The process of a training: it counts file operations in its run folder, and ends at one of them.
_CHILD = """import os, signal, sys
folder, at = os.path.abspath(sys.argv[1]), int(sys.argv[2])
count = 0
def hook(event, arguments):
    global count
    if event == "open":
        path, mode, flags = arguments
        if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR):
            return
    elif event not in ("os.rename", "os.remove", "os.mkdir"):
        return
    if isinstance(arguments[0], (str, bytes)):
        if os.path.abspath(os.fsdecode(arguments[0])).startswith(folder):
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
sys.argv = ["longtail", *sys.argv[3:]]
from longtail.cli.main import run
try:
    run()
finally:
    print(f"operations: {count}", flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", default=["cross_entropy", "ride", "paco"])
    parser.add_argument("--all", action="store_true", help="Every recipe.")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "chaos")
    flags = parser.parse_args()
    recipes = list(RECIPES) if flags.all else flags.recipes
    print(f"seed {flags.seed}")
    failed = []
    for recipe in recipes:
        work = flags.work / recipe
        shutil.rmtree(work, ignore_errors=True)
        generator = random.Random(f"{flags.seed} {recipe}")
        reason = torment(recipe, work, generator, kills=flags.kills, workers=flags.workers)
        print(f"{recipe}: {reason or f'equal after {flags.kills} kills'}", flush=True)
        failed += [recipe] if reason else []
        if not reason:
            shutil.rmtree(work, ignore_errors=True)
    print(f"tried {len(recipes)}, equal {len(recipes) - len(failed)}, failed {len(failed)}")
    sys.exit(bool(failed))


def torment(
    recipe: str, work: Path, generator: random.Random, *, kills: int, workers: int
) -> str | None:
    """Train with and without kills; what differs, or None."""
    work.mkdir(parents=True)
    started = time.monotonic()
    process = start(recipe, work / "undisturbed")
    output, _ = process.communicate()
    seconds = time.monotonic() - started
    if process.returncode:
        return f"fails without a kill: {output.strip()[-300:]}"
    operations = int(output.rpartition("operations: ")[2])
    for number in range(kills):
        more = ("--workers", str(workers)) if number % 2 else ()
        if number % 3 < 2:
            # A resumed run has fewer operations left: from the front, in the middle, at the end
            at = generator.randrange(1, max(2, operations * (kills - number) // kills))
            process = start(recipe, work / "killed", *more, at=at)
            process.communicate()
        else:
            process = start(recipe, work / "killed", *more)
            time.sleep(generator.uniform(0, seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            return f"kill {number + 1} was followed by exit code {process.returncode}"
    output, _ = (process := start(recipe, work / "killed")).communicate()
    if process.returncode:
        return f"does not resume: {output.strip()[-300:]}"
    return difference(work / "undisturbed", work / "killed")


def start(recipe: str, out: Path, *words: str, at: int = 0) -> subprocess.Popen[str]:
    """Start a training that kills itself at a file operation; 0: at none."""
    if recipe in VECTORS:
        settings = ("--data", str(write_vectors(out.with_name("vectors.npz"))), *VECTORS[recipe])
    else:
        settings = (*TRAINED, *SETTINGS.get(recipe, ()))
        settings += () if "--data" in settings else ("--data", "digits-lt")
    argv = ("train", recipe, "--out", str(out), *QUICK, *settings, *words)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, str(out), str(at), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def write_vectors(path: Path) -> Path:
    """Write features of eight classes that vectors describe, two of them unseen in training."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(8, 6)).astype(np.float32)
    target = np.repeat(np.arange(8), 30)
    features = vectors[target] @ generator.normal(size=(6, 16)) + generator.normal(size=(240, 16))
    split = np.where(np.arange(240) % 3 == 0, "test", "train")
    split[target >= 6] = "test"
    arrays: dict[str, Any] = {"features": features.astype(np.float32)}
    arrays |= {"target": target, "split": split, "attribute.vector": vectors}
    np.savez(path, allow_pickle=False, **arrays)
    return path


def difference(one: Path, other: Path) -> str | None:
    """The first file in which two runs differ, except for times; None if they are equal."""
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    others = sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
    if missing := {*names} ^ {*others}:
        return f"only one of them has {sorted(missing)[0]}"
    for name in names:
        if name.endswith(".jsonl") and not name.startswith("sessions"):
            equal = _lines(one / name) == _lines(other / name)
        elif name.endswith(".npz"):
            equal = _arrays(one / name) == _arrays(other / name)
        elif name.endswith(".safetensors"):
            equal = (one / name).read_bytes() == (other / name).read_bytes()
        elif name == "row.json":
            equal = all(
                json.loads((one / name).read_text())[part]
                == json.loads((other / name).read_text())[part]
                for part in ("test", "val", "keywords", "data")
            )
        else:
            continue
        if not equal:
            return f"{name} differs"
    return None


def _lines(path: Path) -> Sequence[object]:
    return [
        {name: value for name, value in line.items() if name not in Journal.TIMES}
        for line in read_lines(path)
    ]


def _arrays(path: Path) -> dict[str, bytes]:
    with np.load(path) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


if __name__ == "__main__":
    main()
