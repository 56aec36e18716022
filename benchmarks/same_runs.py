"""Whether this tree trains, evaluates and exports to the bit what an earlier commit did.

    python benchmarks/same_runs.py [--baseline 705d4cf] [--only digits] [--work FOLDER]

Small trainings run with the code of the baseline and with that of this tree, on the CPU in fp32.
Each training is also started with the old code, killed (SIGKILL) in the middle of every stage, and
finished with the new code. Then weights, checkpoints, journals, rows, predictions, evaluations,
tables and the outputs of exported networks are compared: equal to the bit, but for what the tables
below name. With `--work`, folders are kept, those of the baseline are used again, and
all differences are in `new/SCENARIO.txt`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[1]

# What changed since the baseline: every entry is a decision that someone has to defend.
# Files are named by patterns of their path in the run folder, and keys by the file they are in.
RENAMED_WORDS: Mapping[str, str] = {}  # sub-commands, recipes and flags of the command line
RENAMED_FILES: Mapping[str, str] = {}
# Of a split, in words of the field; the mappings of a list have no name before the point
SUMMARY = {
    "classes_without_test": "classes_without_images",
    "tested": "images_per_class",
    "eater": "confused_with",
    "eaten": "confused_share",
    "eater_group": "confused_with_group",
    ".train": "train_images",
    ".known": "known_prior",
    "confusions.right": "correct",
    "several": "multiple",
    "single_right": "single_correct",
}
KEYWORDS = {
    "keywords.plain": "plain_weight",
    "keywords.attended": "batchformer_weight",
    "keywords.batchformer_rate": "batchformer_lr_scale",
    "keywords.heat": "class_temperature",
    "keywords.pretrained": "weights",
}
# Of any mapping in a file, or of that under a key
RENAMED_KEYS: Mapping[str, Mapping[str, str]] = {
    "row.json": {
        "best_validation.balanced": "value",  # it is the headline's, whatever that is
        "adjusting": "adjustment",
        "data.marks": "caveats",
        **SUMMARY,
        **KEYWORDS,
    },
    "eval-*.json": SUMMARY,
    "recipe.json": {"data.asked": "source", **KEYWORDS},
    "auto.json": {"why": "reason", "asked_minutes": "requested_minutes"},
}
# Of a scenario's training: what used to be implied. Streamed folders were cropped.
NEW_FLAGS: Mapping[str, Sequence[str]] = {
    "streamed": ("--geometry", "crop"),
    "streamed-workers": ("--geometry", "crop"),
    # Transformers of small images have another network and another crop by default
    "teacher": ("--network", "vit_mini", "--crop", "part"),
    "two-stages": ("--network", "vit_mini"),
}
NEW_FILES: Sequence[str] = ("predict.py",)  # of an export
DATA_FLAGS = ("geometry", "pairs", "scoring", "test_domain", "train_domain", "word_vectors")
NEW_KEYWORDS = (
    *("crop", "optimizer", "features", "weights", "ema", "loss_scale", "rho_schedule", "views"),
    *("batchformer", "batchformer_layers", "batchformer_lr_scale", "batchformer_scope"),
    *("plain_weight", "batchformer_weight", "answer", "class_loss", "distill"),
    *("teacher_size", "teacher_repeats"),
)
NEW_KEYS: Mapping[str, Sequence[str]] = {
    "row.json": ("scores", "headline", "labels", *DATA_FLAGS, *NEW_KEYWORDS),
    "eval-*.json": ("scores", "headline", "labels"),
    "recipe.json": (*DATA_FLAGS, *NEW_KEYWORDS),
    "model.json": ("changed", "program"),  # of an export: how it was checked
    "*last.pt": ("progress",),  # of every parameter group: the share of training that is done
}
# The gradient of LDAM, of this scenario's teacher, is computed in closed form: it is rounded in
# other places, and so are the numbers that follow from it. Everything but numbers is equal.
TOLERANCES: Mapping[str, float] = {"teacher": 2e-4}
# Losses of hard targets are summed in another order: their gradients are equal to the bit, the
# means that the journal quotes to seven digits.
ROUNDED: Mapping[str, Sequence[str]] = {"*journal.jsonl": ("terms/*",)}
BUDGETS = ("MEMORY",)  # constants of longtail.data: bytes above which images are streamed

# What two runs of one tree differ in, and what moving a module changes.
TIMES = ("seconds", "images_per_second")
IGNORED_KEYS: Mapping[str, Sequence[str]] = {
    "*": ("format", "hardware", "versions", *TIMES, "minutes", "minutes_before"),
    "*last.pt": ("journal",),  # its length in bytes: times have more or fewer digits
    # How images become squares, in other words; what they become, the predictions say
    "*spec.json": ("kept", "stored", "geometry"),
    "*training.npz": ("runs",),  # were named by their folder
    "recipe.json": ("command", "target"),  # the words and --out; the module of the recipe
}
IGNORED_FILES = (
    *("report.html", "README.md", "recipe.py", "sessions.jsonl", "*.onnx.data"),
    "reconstructions.png",  # it showed images of training, and now of the test
)

LAUNCH = f"""
import importlib, os, pkgutil
if budget := os.environ.get("SAME_RUNS_BUDGET"):
    import longtail.data
    places = []
    for found in pkgutil.walk_packages(longtail.data.__path__, "longtail.data."):
        module = importlib.import_module(found.name)
        places += [(module, name) for name in {BUDGETS!r} if name in vars(module)]
    assert places, "longtail.data has none of {BUDGETS}: name the new one in BUDGETS"
    for place in places:
        setattr(*place, int(budget))
from longtail.cli.main import run
run()
"""


@dataclass(frozen=True)
class Scenario:
    """One training, the stages it is killed in, and a second one to compare it with."""

    name: str
    words: tuple[str, ...]  # of `longtail train`
    stages: tuple[str, ...] = ("train",)
    streamed: bool = False
    processes: int = 1
    rival: tuple[str, ...] = ()


DIGITS = ("--data", "digits-lt", "--epochs", "3", "--batch", "32")
CHOSEN = ("--keep", "best", "--adjust", "validation")
FOLDER = ("balanced_softmax", "--data", "../../images", "--epochs", "3", "--batch", "16")
VIT = ("--data", "digits-lt", "--epochs", "3", "--batch", "64", "--patch", "2")
PRETRAIN = ("--pretrain-epochs", "3", "--pretrain-batch", "64")
SCENARIOS = (
    Scenario(
        "digits",
        ("balanced_softmax", *DIGITS, *CHOSEN, "--mixup", "0.3"),
        rival=("cross_entropy", *DIGITS, *CHOSEN),
    ),
    Scenario("folder", (*FOLDER, "--batchformer", "on", "--augment", "randaugment")),
    Scenario("workers", (*FOLDER, "--workers", "2", "--tta", "flip")),
    Scenario("streamed", FOLDER, streamed=True),
    Scenario("streamed-workers", (*FOLDER, "--workers", "2"), streamed=True),
    Scenario("parquet", ("cross_entropy", "--data", "../../parquet", *FOLDER[3:])),
    Scenario("two-processes", ("balanced_softmax", *DIGITS), processes=2),
    Scenario("teacher", ("deit_lt", *VIT, "--teacher-epochs", "3"), ("teacher", "student")),
    Scenario("two-stages", ("livt", *VIT, *PRETRAIN), ("pretrain", "finetune")),
)


class CommandFailed(Exception):
    """A command that did not do what it was started for."""


@dataclass(frozen=True)
class Side:
    """A scenario as one of the two trees runs it, in a folder of its own."""

    title: str  # "old" or "new"
    tree: Path
    folder: Path
    scenario: Scenario

    def start(self, words: Sequence[str], processes: int) -> list[subprocess.Popen[bytes]]:
        """Start `longtail WORDS`, in as many processes as asked."""
        print(f"  {self.scenario.name}: {self.title}: longtail {' '.join(words)}", file=sys.stderr)
        renamed = RENAMED_WORDS if self.title == "new" else {}
        command = [sys.executable, str(self.folder.parents[1] / "launch.py")]
        command += [renamed.get(word, word) for word in words]
        variables = {**os.environ, "PYTHONPATH": str(self.tree / "src"), "OMP_NUM_THREADS": "1"}
        variables["XDG_CACHE_HOME"] = str(self.folder / "cache")
        if self.scenario.streamed:
            variables["SAME_RUNS_BUDGET"] = "1000"
        if processes > 1:  # what torchrun sets; its processes would survive a kill of torchrun
            with socket.create_server(("127.0.0.1", 0)) as server:
                variables["MASTER_PORT"] = str(server.getsockname()[1])
            variables |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(processes)}
        with (self.folder / "log.txt").open("ab") as log:
            return [
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=log,
                    stderr=log,
                )
                for rank in range(processes)
            ]

    def run(self, *words: str, processes: int = 1) -> None:
        """Run `longtail WORDS` to its end."""
        started = self.start(words, processes)
        while any(one.poll() is None for one in started):
            if any(one.poll() for one in started):  # the others would wait for it for hours
                kill(started)
            time.sleep(0.02)
        if any(one.returncode for one in started):
            lines = (self.folder / "log.txt").read_text(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            raise CommandFailed(f"{self.title}: longtail {words[0]} failed: {last}")

    def training(self, words: Sequence[str], out: str) -> list[str]:
        """The words of a training into a folder."""
        implied = NEW_FLAGS.get(self.scenario.name, ()) if self.title == "new" else ()
        machine = ("--device", "cpu", "--precision", "fp32", "--threads", "1")
        return ["train", *words, *implied, *machine, "--out", out]

    def train(self, out: str) -> None:
        """Train to the end, or finish what is there."""
        self.run(*self.training(self.scenario.words, out), processes=self.scenario.processes)

    def train_and_kill(self, stage: str, out: str) -> None:
        """Train into the second epoch of a stage, saving at every step, and kill it there."""
        words = [*self.training(self.scenario.words, out), "--save-every", "0"]
        started = self.start(words, self.scenario.processes)
        journal, last = (self.folder / out / stage / name for name in ("journal.jsonl", "last.pt"))
        saves: set[int] = set()
        while len(saves) < 3 and all(one.poll() is None for one in started):
            if journal.exists() and journal.stat().st_size and last.exists():
                saves.add(last.stat().st_mtime_ns)
            time.sleep(0.001)
        kill(started)
        if len(saves) < 3 or (last.parent / "done").exists():
            raise CommandFailed(f"{self.title}: {stage} ended before it could be killed")

    def use(self) -> None:
        """Evaluate, predict, export and compare what was trained."""
        shutil.copytree(self.folder / "run", self.folder / "evaluated" / "run")
        for name in ("predicted", "compared"):
            (self.folder / name).mkdir()
        cpu = ("--device", "cpu", "--threads", "1")
        self.run("eval", "evaluated/run", "--tta", "flip", *cpu)
        self.run("predict", "run", "../../images/test", "--out", "predicted/test.csv", *cpu)
        self.run("export", "run", "--to", "onnx", "--out", "exported")
        if self.scenario.rival:
            self.run(*self.training(self.scenario.rival, "rival"))
            self.run("compare", "run", "rival", "--out", "compared/table.csv")


def kill(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes as a power cut would."""
    for one in started:
        one.send_signal(signal.SIGKILL)
    for one in started:
        one.wait()


def run_baseline(old: Side) -> None:
    """Everything that the old code does in a scenario, unless it was done before."""
    done = old.folder.with_suffix(".done")
    if done.exists() and done.read_text() == repr(old.scenario):
        return
    done.unlink(missing_ok=True)
    shutil.rmtree(old.folder, ignore_errors=True)
    old.folder.mkdir(parents=True)
    old.train("run")
    for stage in old.scenario.stages:
        old.train_and_kill(stage, f"killed/{stage}/run")
    old.use()
    done.write_text(repr(old.scenario))


def compare_sides(old: Side, new: Side) -> Iterator[str]:
    """Run a scenario with both trees, and name what differs."""
    run_baseline(old)
    shutil.rmtree(new.folder, ignore_errors=True)
    new.folder.mkdir(parents=True)
    tolerance = TOLERANCES.get(new.scenario.name, 0.0)
    for stage in new.scenario.stages:
        killed, resumed = old.folder / "killed" / stage, new.folder / "resumed" / stage
        shutil.copytree(killed, resumed)
        new.train(f"resumed/{stage}/run")
        for journal in killed.rglob("journal.jsonl"):
            repeated = journal.relative_to(killed)
            if first_times(journal) != first_times(resumed / repeated):
                yield f"killed in {stage}: {repeated.parent} was trained again"
        for difference in compare_folders(old.folder / "run", resumed / "run", tolerance):
            yield f"killed in {stage}: {difference}"
    new.train("run")
    new.use()
    for part in ("run", "evaluated/run", "predicted", "exported", "rival", "compared"):
        for difference in compare_folders(old.folder / part, new.folder / part, tolerance):
            yield f"{part}: {difference}"


def first_times(journal: Path) -> list[float]:
    """The times of a journal's first line, which no second training would have again."""
    line = json.loads(journal.read_text().splitlines()[0])
    return [line[name] for name in TIMES]


def compare_folders(old: Path, new: Path, tolerance: float = 0.0) -> Iterator[str]:
    """Name the files that differ, are missing, or are new and not expected.

    With a tolerance, numbers may differ by this share of the largest number beside them.
    """
    before = {RENAMED_FILES.get(name, name): path for name, path in files_of(old).items()}
    after = files_of(new)
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"{name} is missing"
        elif name in before:
            contents = content(before[name], name, old=True), content(after[name], name, old=False)
            new_keys = [key for file in NEW_KEYS if fnmatch(name, file) for key in NEW_KEYS[file]]
            expected = tuple(f": {key} is new" for key in new_keys)
            found = (
                where for where in differences(*contents, tolerance) if not where.endswith(expected)
            )
            yield from (f"{name}{where}" for where in found)
        elif not matches(name, NEW_FILES):
            yield f"{name} is new"


def files_of(folder: Path) -> dict[str, Path]:
    """The files below a folder that are compared, by their path in it."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path for name, path in named.items() if not matches(path.name, IGNORED_FILES)}


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of those that patterns stand for."""
    return any(fnmatch(name, pattern) for pattern in patterns)


class Rounded(float):
    """A number that is compared to seven digits."""


def content(path: Path, name: str, *, old: bool) -> Any:
    """What a file holds, without what is ignored, and under the names of today."""
    ignored = {key for file in IGNORED_KEYS if fnmatch(name, file) for key in IGNORED_KEYS[file]}
    renamed: dict[str, str] = {}
    for file in RENAMED_KEYS if old else ():
        renamed |= RENAMED_KEYS[file] if fnmatch(name, file) else {}

    rounded = {key for file in ROUNDED if fnmatch(name, file) for key in ROUNDED[file]}

    def cleaned(value: Any, parent: str = "") -> Any:
        if isinstance(value, Mapping):
            kept = {key: item for key, item in value.items() if key not in ignored}
            return {
                renamed.get(f"{parent}.{key}", renamed.get(key, key)): cleaned(item, str(key))
                for key, item in kept.items()
            }
        if isinstance(value, float) and matches(parent, rounded):
            return Rounded(value)
        return [cleaned(item) for item in value] if isinstance(value, list | tuple) else value

    return cleaned(read(path))


def read(path: Path) -> Any:
    """What a file holds, by its kind."""
    if path.suffix == ".json" or path.name == "done":
        return json.loads(path.read_text())
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        return list(csv.DictReader(path.read_text().splitlines()))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".pt":
        return torch.load(path, map_location="cpu", weights_only=True)
    return onnx_outputs(path) if path.suffix == ".onnx" else path.read_bytes()


def onnx_outputs(path: Path) -> list[Any]:
    """What an exported network gives for fixed images."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    image = session.get_inputs()[0]
    shape = [size if isinstance(size, int) else 4 for size in image.shape]
    pixels = np.random.default_rng(0).random(shape, dtype=np.float32)
    return list(session.run(None, {image.name: pixels}))


def differences(old: Any, new: Any, tolerance: float = 0.0) -> Iterator[str]:
    """Where two contents are not equal to the bit."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if key in old and key in new:
                yield from (
                    f": {key}{where}" for where in differences(old[key], new[key], tolerance)
                )
            else:
                yield f": {key} is {'new' if key in new else 'missing'}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from (f": {index}{where}" for where in differences(*pair, tolerance))
    elif isinstance(old, Rounded) and isinstance(new, Rounded):
        if not math.isclose(old, new, rel_tol=max(5e-7, tolerance)):
            yield f": {old!r} became {new!r}"
    elif bits(old) != bits(new) and not (tolerance and close(old, new, tolerance)):
        yield f": {old!r:.60} became {new!r:.60}".replace("\n", "")


def close(old: Any, new: Any, tolerance: float) -> bool:
    """Whether two numbers or arrays of numbers differ by little, also where they are text."""
    try:
        before, after = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if before.shape != after.shape:
        return False
    finite = np.abs(before[np.isfinite(before)])
    limit = tolerance * float(finite.max(initial=0.0))
    return np.allclose(before, after, rtol=tolerance, atol=limit, equal_nan=True)


def shortened(found: Sequence[str]) -> str:
    """The first difference of each of the first five files."""
    first = {tuple(one.split(": ")[:2]): one for one in reversed(found)}
    shown = [one for one in found if one in first.values()][:5]
    more = [f"{len(found) - len(shown)} more"] if len(found) > len(shown) else []
    return "; ".join(shown + more)


def bits(value: Any) -> object:
    """What two values share if and only if they are of one type and equal to the bit."""
    if isinstance(value, torch.Tensor):
        value = value.contiguous().numpy()
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return type(value), repr(value)


def write_images(folder: Path) -> None:
    """Long-tailed classes of non-square images: as class folders, and as parquet files."""
    import pyarrow
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    (folder / "parquet").mkdir(parents=True, exist_ok=True)
    for split, counts in (("train", (48, 30, 18, 10)), ("test", (6, 6, 6, 6))):
        rows = []
        for label, count in enumerate(counts):
            place = folder / "images" / split / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                height, width = (18, 30) if rng.random() < 0.5 else (28, 20)
                pixels = rng.integers(0, 160, (height, width, 3), dtype=np.uint8)
                pixels[label * 4 : label * 4 + 4] += np.uint8(90)
                path = place / f"{index:03}.png"
                Image.fromarray(pixels).save(path)
                image = {"bytes": path.read_bytes(), "path": path.name}
                rows.append({"image": image, "label": label})
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, folder / "parquet" / f"{split}-00000.parquet")


def checked_out(commit: str, folder: Path) -> Path:
    """The sources of a commit in a folder."""
    if not folder.exists():
        command = ["git", "archive", commit, "src"]
        archive = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        folder.mkdir()
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--baseline", default="705d4cf", help="the commit to compare with")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to test; this one")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--work", type=Path, help="keep all folders here, and use old ones again")
    options = parser.parse_args()
    chosen = [own for own in SCENARIOS if own.name in (options.only or names)]
    differing = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        (work / "launch.py").write_text(LAUNCH)
        if not (work / "parquet" / "test-00000.parquet").exists():
            write_images(work)
        old_tree = checked_out(options.baseline, work / f"tree-{options.baseline}")
        for scenario in chosen:
            began, name = time.monotonic(), scenario.name
            old = Side("old", old_tree, work / f"old-{options.baseline}" / name, scenario)
            new = Side("new", options.tree.resolve(), work / "new" / name, scenario)
            try:
                found = list(compare_sides(old, new))
            except CommandFailed as error:
                found = [str(error)]
            differing += bool(found)
            result = f"differs: {shortened(found)}" if found else "ok"
            print(f"{name}: {result} ({time.monotonic() - began:.0f} s)", flush=True)
            if options.work:
                (work / "new" / f"{name}.txt").write_text("".join(f"{one}\n" for one in found))
    print(f"{len(chosen)} compared, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
