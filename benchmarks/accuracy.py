"""Run what is missing of a plan: every arm with every seed, one JSON each.

    python benchmarks/accuracy.py benchmarks/plans/cifar10_lt_baselines.json --root DATA --work runs/benchmarks [--jobs 2] [--only ARM]

A plan says question, data, settings, arms, seeds and what is expected; it is committed before its first run. Data that is a folder of
images is "{root}" in its plan: whatever `--root` says. An arm's null takes a setting away. An arm may begin with the run of another, as in
"pretrained": "{work}/PLAN/ARM-seed{seed}"; such arms come after all others. If that run is gone, and only its result is left, it is trained
again; what it reached stands in the results of those that begin with it. Runs resume where they were stopped, and a finished one is
`benchmarks/results/PLAN/ARM-seedN.json`, to be committed. A command that another plan has run is not run again: its result is copied, and
says from where. A plan that chooses settings has `"judged": "validation"`, and its results keep no numbers of test images. Accuracy does
not depend on how busy the machine is: `--jobs 2` runs two side by side with one thread each, `--threads 2` one that has to end sooner.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import RLock
from typing import Any

from longtail.deprecated import current_keyword, current_keywords
from longtail.recipes.signatures import read

RESULTS = Path(__file__).parent / "results"
PLANS = Path(__file__).parent / "plans"
BEGINNING = RLock()  # one job at a time trains what others begin with: they may begin with the same


def command(
    plan: dict[str, Any], arm: dict[str, Any], *, seed: int, out: Path, work: Path, root: Path
) -> list[str]:
    settings = {
        name: value for name, value in {**plan["settings"], **arm}.items() if value is not None
    }
    recipe = settings.pop("recipe")
    words = [
        "longtail",
        "train",
        recipe,
        "--data",
        str(plan["data"]).format(root=root),
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        words += (
            [f"--{flag}" if value else f"--no-{flag}"]
            if isinstance(value, bool)
            else [f"--{flag}", str(value).format(work=work, seed=seed)]
        )
    return words if plan["data"] == "{root}" else [*words, "--root", str(root)]


def begins_with(plan: dict[str, Any], arm: str, seed: int) -> list[str]:
    """The runs that an arm begins with, as PLAN/ARM-seedN."""
    values = map(str, {**plan["settings"], **plan["arms"][arm]}.values())
    return [
        value.removeprefix("{work}/").format(seed=seed)
        for value in values
        if value.startswith("{work}/")
    ]


def silent(result: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords that a run's command does not name and that had another default when it ran."""
    recipe = result["row"]["recipe"]
    today = {name: own.default for name, own in read(recipe).parameters.items()}
    given = {
        current_keyword(recipe, part.partition(" ")[0].removeprefix("no-").replace("-", "_"))
        for part in result["command"].split(" --")
    }
    used = current_keywords(recipe, result["row"]["keywords"])
    return {
        name: used[name]
        for name, default in today.items()
        if name not in given and used.get(name, default) != default
    }


def twin(shown: str) -> tuple[str, dict[str, Any]] | None:
    """The result of the same command in another plan: equal keywords, data and seed, in any order, and the defaults of today."""

    def settings(command: str) -> list[str]:
        return sorted(part for part in command.split(" --") if not part.startswith("out "))

    for path in sorted(RESULTS.glob("*/*-seed*.json")):
        whole = json.loads(path.read_text())
        if (
            settings(whole["command"]) == settings(shown)
            and whole["row"]["test"] is not None
            and not silent(whole)
        ):
            return f"{path.parent.name}/{path.stem}", whole
    return None


def curve(folder: Path) -> dict[str, list[dict[str, Any]]]:
    lines = {}
    for journal in sorted(folder.glob("*/journal.jsonl")):
        parsed = [json.loads(line) for line in journal.read_text().splitlines()]
        lines[journal.parent.name] = [line for line in parsed if line["kind"] == "epoch"]
    return lines


def train(
    plan: dict[str, Any], name: str, arm: str, seed: int, *, root: Path, work: Path, threads: int
) -> str | None:
    """Train an arm, and before it what it begins with; says what failed."""
    for first in begins_with(plan, arm, seed):
        earlier, _, run = first.partition("/")
        own, _, own_seed = run.rpartition("-seed")
        with BEGINNING:
            if (work / first / "row.json").exists():
                continue
            planned = json.loads((PLANS / f"{earlier}.json").read_text())
            if failed := train(
                planned, earlier, own, int(own_seed), root=root, work=work, threads=threads
            ):
                return failed
    out = work / name / f"{arm}-seed{seed}"
    words = command(plan, plan["arms"][arm], seed=seed, out=out, work=work, root=root)
    out.parent.mkdir(parents=True, exist_ok=True)
    said = out.with_name(f"{out.name}.log")  # not with_suffix: arms have points in their names
    with said.open("a") as log:
        machine = ["--threads", str(threads), "--device", "cpu"]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("longtail")), *words[1:], *machine],
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return f"{out} failed: see {said}" if done.returncode else None


def minutes(folder: Path, row: Mapping[str, Any]) -> float:
    """What it took to make what others begin with: of an encoder its pretraining, without the classifier that judges it."""
    pretraining = folder / "pretrain" / "done"
    return float(
        json.loads(pretraining.read_text())["minutes"] if pretraining.exists() else row["minutes"]
    )


def run(
    plan: dict[str, Any],
    name: str,
    arm: str,
    seed: int,
    *,
    root: Path,
    work: Path,
    threads: int = 1,
) -> str:
    result, out = RESULTS / name / f"{arm}-seed{seed}.json", work / name / f"{arm}-seed{seed}"
    if result.exists():
        return f"{result} was there"
    runs = Path("runs")
    shown = " ".join(
        command(
            plan,
            plan["arms"][arm],
            seed=seed,
            out=runs / name / f"{arm}-seed{seed}",
            work=runs,
            root=Path("DATA"),
        )
    )
    shown += f" --threads {threads}"
    result.parent.mkdir(parents=True, exist_ok=True)
    if plan.get("judged") != "validation" and (found := twin(shown)):
        copied, whole = found
        result.write_text(
            json.dumps({**whole, "plan": name, "arm": arm, "copied": copied}, indent=1) + "\n"
        )
        return f"{result} is that of {copied}"
    if failed := train(plan, name, arm, seed, root=root, work=work, threads=threads):
        return failed
    row = json.loads((out / "row.json").read_text())
    if plan.get("judged") == "validation":
        row["test"] = None
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    whole = {
        "plan": name,
        "arm": arm,
        "command": shown,
        "commit": commit,
        "row": row,
        "curve": curve(out),
    }
    if begun := begins_with(plan, arm, seed):
        rows = {first: json.loads((work / first / "row.json").read_text()) for first in begun}
        whole["begun_with"] = {first: own["val"]["balanced"] for first, own in rows.items()}
        whole["begun_minutes"] = {first: minutes(work / first, own) for first, own in rows.items()}
        whole["begun_threads"] = {first: own["hardware"]["threads"] for first, own in rows.items()}
    result.write_text(
        json.dumps(whole, indent=1).replace(str(work), str(runs)) + "\n"
    )  # no folders of this machine
    return f"{result} is new"


def check(plan: dict[str, Any], arms: list[str], seeds: list[int]) -> None:
    """Refuse arms and seeds that a plan lacks: nothing would run, and nothing would say so."""
    if strange := [arm for arm in arms if arm not in plan["arms"]]:
        raise SystemExit(
            f"expected arms of this plan, got {', '.join(strange)}: take {', '.join(plan['arms'])}, one --only for each"
        )
    if unknown := [seed for seed in seeds if seed not in plan["seeds"]]:
        raise SystemExit(
            f"expected seeds of this plan, got {unknown}: take some of {plan['seeds']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="where the images are")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/benchmarks"),
        help="where runs are kept while they are unfinished",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each job")
    parser.add_argument("--only", action="append", help="an arm; may be repeated")
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(part) for part in text.split(",")],
        help="only these of the plan's seeds",
    )
    asked = parser.parse_args()
    plan = json.loads(asked.plan.read_text())
    check(plan, asked.only or [], asked.seeds or [])
    wanted = [(arm, seed) for seed in plan["seeds"] for arm in plan["arms"]]
    wanted = [
        (a, s)
        for a, s in wanted
        if (not asked.only or a in asked.only) and (not asked.seeds or s in asked.seeds)
    ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        for late in (False, True):
            jobs = [job for job in wanted if bool(begins_with(plan, *job)) is late]
            done = pool.map(
                lambda job: run(
                    plan,
                    asked.plan.stem,
                    *job,
                    root=asked.root,
                    work=asked.work,
                    threads=asked.threads,
                ),
                jobs,
            )
            for said in done:
                print(said, flush=True)


if __name__ == "__main__":
    main()
