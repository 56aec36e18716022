"""One description for named sweeps, committed plans and published rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longtail.data.request import data_flags
from longtail.deprecated import current_keyword
from longtail.experiments import spec
from longtail.experiments.jobs import jobs_of
from longtail.experiments.spec import Sweep, citations, expand, named_sweeps, upgrade_plan
from longtail.recipes import RECIPES
from longtail.recipes.published import published
from longtail.recipes.signatures import RESERVED, read

PLANS = Path(__file__).parents[2] / "benchmarks" / "plans"


def test_named_sweeps_ask_for_what_there_is() -> None:
    for sweep in named_sweeps().values():
        for name in sweep.recipes:
            keywords = {current_keyword(name, key) for key in {*sweep.grid} - {*data_flags()}}
            assert keywords <= {*read(name).parameters} or sweep.per_recipe
            for together in (*sweep.zip, sweep.per_recipe.get(name, {})):
                read(name).keywords(together)
        assert set(sweep.per_recipe) <= set(sweep.recipes)
        assert set(sweep.flags) <= RESERVED


def test_a_sweep_like_a_published_row_has_its_settings() -> None:
    row = published()["cifar10-lt-deit-lt-paco"]
    arms = jobs_of(expand(named_sweeps()["deit-lt-paper"]), Path("out"))
    teacher = {"teacher_network": "resnet32", "teacher_rho": 0.8, "teacher_schedule": "steps"}
    keywords = read(row.recipe).keywords({**row.keywords, **teacher, "teacher_epochs": 400})
    paco = [job for job in arms if job.keywords["teacher_method"] == "paco"]
    assert [job.keywords for job in paco] == [keywords] * 3
    flags = {"imbalance": row.imbalance, "protocol": row.protocol, "geometry": row.geometry}
    assert paco[0].flags == flags


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x]\ngird = {}", "unknown field of sweep x 'gird': did you mean grid"),
        ("[x]\nseeds = ['a']", "seeds of sweep x: expected int, got 'a'"),
        ("[x]\nlike = 'cifar10-lt-livd'", "unknown published row in x 'cifar10-lt-livd'"),
        ("[x]\nprerequisites = ['flt']", "unknown prerequisite of x 'flt': did you mean flat"),
    ],
)
def test_a_sweep_that_does_not_fit_is_named(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweeps.toml").write_text(f"[prerequisites.flat]\nrecipe = 'ldam'\n{text}")
    monkeypatch.setattr(spec, "DATA", tmp_path)
    named_sweeps.cache_clear()
    try:
        with pytest.raises(ValueError, match=message):
            named_sweeps()
    finally:
        named_sweeps.cache_clear()


def test_swept_flags_are_those_of_the_data_with_several_values() -> None:
    sweep = Sweep(grid={"imbalance": "10,50", "tau": "1,2", "profile": "exp", "split_seed": [0, 1]})
    assert sweep.swept_flags == ["imbalance", "split_seed"]
    assert Sweep(zip=({"imbalance": 10}, {"imbalance": 50})).swept_flags == ["imbalance"]


def write_plan(folder: Path, name: str, **plan: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"data": "digits-lt", "settings": {}, "seeds": [0, 1], **plan}))
    return path


def test_a_plan_is_an_experiment(tmp_path: Path) -> None:
    settings = {"recipe": "balanced_softmax", "imbalance": 10, "epochs": 3, "tta": "flip"}
    arms = {"a": {}, "b.5": {"epochs": None, "split_seed": "{seed}", "recipe": "cross_entropy"}}
    jobs = jobs_of(
        upgrade_plan(write_plan(tmp_path, "plan", settings=settings, arms=arms)), tmp_path
    )
    assert [(job.recipe.name, job.seed, str(job.folder.relative_to(tmp_path))) for job in jobs] == [
        ("balanced_softmax", 0, "plan/a-seed0"),
        ("balanced_softmax", 1, "plan/a-seed1"),
        ("cross_entropy", 0, "plan/b.5-seed0"),
        ("cross_entropy", 1, "plan/b.5-seed1"),
    ]
    assert [job.keywords["epochs"] for job in jobs[1:3]] == [
        3,
        read("cross_entropy").parameters["epochs"].default,
    ]
    assert jobs[1].flags == {"imbalance": 10, "tta": "flip"}
    assert jobs[3].flags == {"imbalance": 10, "tta": "flip", "split_seed": 1}


def test_an_arm_of_a_plan_may_start_from_that_of_another(tmp_path: Path) -> None:
    flat = {"recipe": "ldam", "rho": 0.5}
    write_plan(tmp_path, "teachers", data="cifar10-lt", arms={"flat": flat}, seeds=[0])
    arms = {
        "shared": {"teacher": "{work}/teachers/flat-seed0"},
        "each": {"teacher": "{work}/teachers/flat-seed{seed}"},
    }
    path = write_plan(tmp_path, "students", settings={"recipe": "deit_lt"}, arms=arms)
    jobs = jobs_of(upgrade_plan(path), Path("work"))
    start = [job for job in jobs if not job.compared]
    assert [(str(job.folder), job.seed, job.data) for job in start] == [
        ("work/teachers/flat-seed0", 0, "cifar10-lt"),
        ("work/teachers/flat-seed1", 1, "cifar10-lt"),
    ]
    assert {job.keywords["rho"] for job in start} == {0.5}
    assert [job.keywords["teacher"] for job in jobs if job.compared] == [
        "work/teachers/flat-seed0",
        "work/teachers/flat-seed0",
        "work/teachers/flat-seed0",
        "work/teachers/flat-seed1",
    ]


RUN_PLANS = [path for path in sorted(PLANS.glob("*.json")) if "arms" in path.read_text()]


@pytest.mark.parametrize("path", RUN_PLANS, ids=lambda path: path.stem)
def test_committed_plans_can_be_run(path: Path) -> None:
    plan = json.loads(path.read_text())
    jobs = jobs_of(upgrade_plan(path), Path("work"))
    assert len([job for job in jobs if job.compared]) == len(plan["arms"]) * len(plan["seeds"])


def test_citations_are_of_recipes_and_complete() -> None:
    assert set(citations()) <= set(RECIPES)
    assert all(entry.startswith("@") for entries in citations().values() for entry in entries)


def test_descriptions_need_no_torch() -> None:
    code = (
        "import sys, longtail.experiments.spec as spec, longtail.experiments.jobs\n"
        "assert spec.named_sweeps() and spec.citations()\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
