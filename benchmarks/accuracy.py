"""Run what is missing of a plan: every arm with every seed, one JSON each.

    python benchmarks/accuracy.py benchmarks/plans/cifar10_lt_baselines.json --root DATA --work runs/benchmarks [--jobs 2] [--only ARM]

A plan says question, data, settings, arms, seeds and what is expected; it is committed before its first run. Data that is a folder of
images is "{root}" in its plan: whatever `--root` says. An arm may begin with the
run of another, as in "pretrained": "{work}/PLAN/ARM-seed{seed}"; such arms come after all others. Runs resume where
they were stopped, and a finished one is `benchmarks/results/PLAN/ARM-seedN.json`, to be committed. A command that another plan has run
is not run again: its result is copied, and says from where. A plan that chooses settings has `"judged": "validation"`, and its results
keep no numbers of test images. Accuracy does not depend on how busy the machine is: `--jobs 2` runs two side by side with one thread
each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from longtail.recipes.signatures import read

RESULTS = Path(__file__).parent / "results"


def command(plan: dict[str, Any], arm: dict[str, Any], *, seed: int, out: Path, work: Path, root: Path) -> list[str]:
    settings = {**plan["settings"], **arm}
    recipe = settings.pop("recipe")
    words = ["longtail", "train", recipe, "--data", str(plan["data"]).format(root=root), "--seed", str(seed), "--out", str(out)]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        words += (
            [f"--{flag}" if value else f"--no-{flag}"]
            if isinstance(value, bool)
            else [f"--{flag}", str(value).format(work=work, seed=seed)]
        )
    return words if plan["data"] == "{root}" else [*words, "--root", str(root)]


def waits(plan: dict[str, Any], arm: str) -> bool:
    """Whether an arm begins with the run of another one."""
    return any("{work}" in str(value) for value in plan["arms"][arm].values())


def silent(result: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords that a run's command does not name and that had another default when it ran."""
    today = {name: own.default for name, own in read(result["row"]["recipe"]).parameters.items()}
    given = {part.partition(" ")[0].removeprefix("no-").replace("-", "_") for part in result["command"].split(" --")}
    used = result["row"]["keywords"]
    return {name: used[name] for name, default in today.items() if name not in given and used.get(name, default) != default}


def twin(shown: str) -> tuple[str, dict[str, Any]] | None:
    """The result of the same command in another plan: equal keywords, data and seed, in any order, and the defaults of today."""

    def settings(command: str) -> list[str]:
        return sorted(part for part in command.split(" --") if not part.startswith("out "))

    for path in sorted(RESULTS.glob("*/*-seed*.json")):
        whole = json.loads(path.read_text())
        if settings(whole["command"]) == settings(shown) and whole["row"]["test"] is not None and not silent(whole):
            return f"{path.parent.name}/{path.stem}", whole
    return None


def curve(folder: Path) -> dict[str, list[dict[str, Any]]]:
    lines = {}
    for journal in sorted(folder.glob("*/journal.jsonl")):
        parsed = [json.loads(line) for line in journal.read_text().splitlines()]
        lines[journal.parent.name] = [line for line in parsed if line["kind"] == "epoch"]
    return lines


def run(plan: dict[str, Any], name: str, arm: str, seed: int, *, root: Path, work: Path) -> str:
    result, out = RESULTS / name / f"{arm}-seed{seed}.json", work / name / f"{arm}-seed{seed}"
    if result.exists():
        return f"{result} was there"
    runs = Path("runs")
    shown = " ".join(command(plan, plan["arms"][arm], seed=seed, out=runs / name / f"{arm}-seed{seed}", work=runs, root=Path("DATA")))
    shown += " --threads 1"
    result.parent.mkdir(parents=True, exist_ok=True)
    if plan.get("judged") != "validation" and (found := twin(shown)):
        copied, whole = found
        result.write_text(json.dumps({**whole, "plan": name, "arm": arm, "copied": copied}, indent=1) + "\n")
        return f"{result} is that of {copied}"
    words = command(plan, plan["arms"][arm], seed=seed, out=out, work=work, root=root)
    out.parent.mkdir(parents=True, exist_ok=True)
    said = out.with_name(f"{out.name}.log")  # not with_suffix: arms have points in their names
    with said.open("a") as log:
        machine = ["--threads", "1", "--device", "cpu"]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("longtail")), *words[1:], *machine], stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        return f"{out} failed: see {said}"
    row = json.loads((out / "row.json").read_text())
    if plan.get("judged") == "validation":
        row["test"] = None
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    whole = {"plan": name, "arm": arm, "command": shown, "commit": commit, "row": row, "curve": curve(out)}
    result.write_text(json.dumps(whole, indent=1) + "\n")
    return f"{result} is new"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="where the images are")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmarks"), help="where runs are kept while they are unfinished")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", help="an arm; may be repeated")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], help="only these of the plan's seeds")
    asked = parser.parse_args()
    plan = json.loads(asked.plan.read_text())
    wanted = [(arm, seed) for seed in plan["seeds"] for arm in plan["arms"]]
    wanted = [(a, s) for a, s in wanted if (not asked.only or a in asked.only) and (not asked.seeds or s in asked.seeds)]
    with ThreadPoolExecutor(asked.jobs) as pool:
        for late in (False, True):
            jobs = [job for job in wanted if waits(plan, job[0]) is late]
            for said in pool.map(lambda job: run(plan, asked.plan.stem, *job, root=asked.root, work=asked.work), jobs):
                print(said, flush=True)


if __name__ == "__main__":
    main()
