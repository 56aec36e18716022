"""Run what is missing of a plan: every arm with every seed, one JSON each.

    python benchmarks/accuracy.py benchmarks/plans/PLAN.json --root DATA --work WORK [--only ARM]

A plan has a question, data, settings, arms, seeds and what is expected; it is committed before its
first run. How it is read stands in `longtail.experiments.spec.upgrade_plan`. An arm may start from
the run of another, as in "pretrained": "{work}/PLAN/ARM-seed{seed}"; such arms come after all
others. If that run is gone, and only its result is left, it is trained again; what it reached
stands in the results of those that start from it. Runs resume where they were stopped, and a
finished one is `benchmarks/results/PLAN/ARM-seedN.json`, to be committed. A command that another
plan has run is not run again: its result is copied, and says from where. A plan that chooses
settings has `"judged": "validation"`, and its results keep no numbers of test images. Accuracy does
not depend on how busy the machine is: `--jobs 2` runs two side by side with one thread each,
`--threads 2` one that has to end sooner. `--one-process` saves the start of a process per run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtail.data.request import flag_words
from longtail.deprecated import current_keyword, run_keywords
from longtail.experiments.jobs import Job, jobs_of, run_folder, run_jobs, settings_of
from longtail.experiments.spec import Arm, Experiment, upgrade_plan
from longtail.recipes.signatures import read
from longtail.records.layout import RunFolder

RESULTS = Path(__file__).parent / "results"
PLANS = Path(__file__).parent / "plans"
SHOWN = Path("runs")  # in the place of the folder of runs on this machine


def command(experiment: Experiment, arm: Arm, seed: int, *, threads: int = 1) -> str:
    """The command of a run, as results show it."""
    place = {"data": arm.data, "seed": seed, "out": run_folder(arm, seed, SHOWN)}
    settings = settings_of(experiment, arm, seed, SHOWN)
    words = flag_words({**place, **settings, "threads": threads})
    return " ".join(["longtail", "train", arm.recipe, *words])


def changed_defaults(result: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords that a run's command does not name and that had another default when it ran."""
    recipe = result["row"]["recipe"]
    today = {name: known.default for name, known in read(recipe).parameters.items()}
    given = {
        current_keyword(recipe, part.partition(" ")[0].removeprefix("no-").replace("-", "_"))
        for part in result["command"].split(" --")
    }
    used = run_keywords(recipe, result["row"]["keywords"])
    return {
        name: used[name]
        for name, default in today.items()
        if name not in given and used.get(name, default) != default
    }


def result_elsewhere(shown: str) -> tuple[str, dict[str, Any]] | None:
    """The result of the same command in another plan: equal keywords, data and seed, in any order,
    and the defaults of today.
    """

    def settings(command: str) -> list[str]:
        return sorted(part for part in command.split(" --") if not part.startswith("out "))

    for path in sorted(RESULTS.glob("*/*-seed*.json")):
        result = json.loads(path.read_text())
        if (
            settings(result["command"]) == settings(shown)
            and result["row"]["test"] is not None
            and not changed_defaults(result)
        ):
            return f"{path.parent.name}/{path.stem}", result
    return None


def curve(folder: RunFolder) -> dict[str, list[dict[str, Any]]]:
    """The epochs of every stage."""
    lines = {}
    for journal in sorted(folder.path.glob(f"*/{folder.stage('').journal.name}")):
        parsed = map(json.loads, journal.read_text().splitlines())
        lines[journal.parent.name] = [line for line in parsed if line["kind"] == "epoch"]
    return lines


def minutes(folder: RunFolder, row: Mapping[str, Any]) -> float:
    """What it took to make what others start from: of an encoder its pretraining, without the
    classifier that evaluates it.
    """
    pretraining = folder.stage("pretrain").record
    return float(
        json.loads(pretraining.read_text())["minutes"] if pretraining.exists() else row["minutes"]
    )


def result_of(job: Job, starts: Sequence[Path], work: Path, *, shown: str, judged: str) -> str:
    """The content of a finished run's result."""
    folder = RunFolder(job.folder)
    row = json.loads(folder.row.read_text())
    if judged == "validation":
        row["test"] = None
        for chosen in ("adjustment", "operating_point"):  # they have the scores without, too
            if chosen in row:
                row[chosen]["test"] = None
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    plan, arm = job.folder.parent.name, job.folder.name.rpartition("-seed")[0]
    result: dict[str, Any] = {"plan": plan, "arm": arm, "command": shown, "commit": commit}
    result |= {"row": row, "curve": curve(folder)}
    if starts:
        rows = {start: json.loads(RunFolder(start).row.read_text()) for start in starts}
        names = {start: str(start.relative_to(work)) for start in starts}
        result["begun_with"] = {  # under the paper protocol there are no validation images
            names[start]: row["val"] and row["val"]["balanced"] for start, row in rows.items()
        }
        result["begun_minutes"] = {
            names[start]: minutes(RunFolder(start), row) for start, row in rows.items()
        }
        result["begun_threads"] = {
            names[start]: row["hardware"]["threads"] for start, row in rows.items()
        }
    return json.dumps(result, indent=1).replace(str(work), str(SHOWN)) + "\n"


def run(
    path: Path,
    *,
    root: Path,
    work: Path,
    jobs: int = 1,
    threads: int = 1,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    one_process: bool = False,
) -> None:
    """Do what is missing of a plan."""
    plan, name = json.loads(path.read_text()), path.stem
    check(plan, only, seeds)
    experiment = upgrade_plan(path, root=root)
    public = upgrade_plan(path, root=Path("DATA"))
    shown: dict[Path, str] = {}
    for seed in plan["seeds"]:
        for arm, trained, same in zip(plan["arms"], experiment.arms, public.arms, strict=True):
            if (only and arm not in only) or (seeds and seed not in seeds):
                continue
            result = RESULTS / name / f"{arm}-seed{seed}.json"
            text = command(public, same, seed, threads=threads)
            if result.exists():
                print(f"{result} was there", flush=True)
            elif plan.get("judged") != "validation" and (found := result_elsewhere(text)):
                write(
                    result,
                    json.dumps({**found[1], "plan": name, "arm": arm, "copied": found[0]}, indent=1)
                    + "\n",
                )
                print(f"{result} is that of {found[0]}", flush=True)
            else:
                shown[run_folder(trained, seed, work)] = text
    flags = {"threads": threads, "device": "cpu"}
    planned = jobs_of(replace(experiment, flags=flags), work)
    places = {str(job.folder): job.folder for job in planned if not job.compared}
    wanted = sorted(
        (job for job in planned if job.compared and job.folder in shown), key=lambda job: job.seed
    )
    starts = {
        job.folder: [places[value] for value in map(str, job.keywords.values()) if value in places]
        for job in wanted
    }
    needed = {start for folders in starts.values() for start in folders}

    def finished(job: Job) -> None:
        if job.compared:
            result = RESULTS / name / f"{job.folder.name}.json"
            write(
                result,
                result_of(
                    job,
                    starts[job.folder],
                    work,
                    shown=shown[job.folder],
                    judged=plan.get("judged", "test"),
                ),
            )
            print(f"{result} is new", flush=True)

    before = [job for job in planned if not job.compared and job.folder in needed]
    run_jobs([*before, *wanted], at_once=jobs, apart=not one_process, finished=finished)


def write(result: Path, text: str) -> None:
    """Write a result."""
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(text)


def check(plan: Mapping[str, Any], arms: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse arms and seeds that a plan lacks: nothing would run, and nothing would say so."""
    if missing := [arm for arm in arms if arm not in plan["arms"]]:
        raise SystemExit(
            f"expected arms of this plan, got {', '.join(missing)}: take {', '.join(plan['arms'])},"
            " one --only for each"
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
    parser.add_argument("--only", action="append", default=[], help="an arm; may be repeated")
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[],
        help="only these of the plan's seeds",
    )
    parser.add_argument(
        "--one-process", action="store_true", help="for many short runs: start no processes"
    )
    given = vars(parser.parse_args())
    run(given.pop("plan"), **given)


if __name__ == "__main__":
    main()
