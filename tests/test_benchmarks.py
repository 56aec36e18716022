"""The runner of plans does what is missing, once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import accuracy
import published_page
import pytest
import render

from longtail.deprecated import current_keywords, run_keywords
from longtail.experiments.jobs import Job
from longtail.experiments.spec import named_sweeps
from longtail.recipes import published
from longtail.recipes.signatures import read

ROW: dict[str, Any] = {
    "recipe": "cross_entropy",
    "keywords": {"epochs": 3, "batch": 16},
    "seed": 0,
    "minutes": 1.0,
    "hardware": {"threads": 2},
    "test": {"top1": 0.5},
}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "results"
    monkeypatch.setattr(accuracy, "RESULTS", folder)
    monkeypatch.setattr("longtail.experiments.jobs.run_job", _refuse)
    return folder


def _refuse(job: Job, **_: object) -> None:
    raise AssertionError(f"started {job.folder}")


def _finish(job: Job, **_: object) -> None:
    job.folder.mkdir(parents=True)
    keywords = {"epochs": 3, "batch": 16, "out": str(job.folder)}
    row = {**ROW, "keywords": keywords, "val": {"top1": 0.4, "balanced": 0.3}}
    (job.folder / "row.json").write_text(json.dumps(row))


def _write(results: Path, plan: str, command: str, *, row: dict[str, object] = ROW) -> None:
    (results / plan).mkdir(parents=True)
    (results / plan / "old-seed0.json").write_text(
        json.dumps({"plan": plan, "arm": "old", "command": command, "row": row})
    )


def _run(results: Path, *, name: str = "later", **plan: Any) -> None:
    path = results.parent / f"{name}.json"
    usual = {"data": "digits-lt", "settings": {}, "arms": {"new": {}}, "seeds": [0]}
    path.write_text(json.dumps({**usual, **plan}))
    accuracy.run(path, root=Path("images"), work=results.parent / "work")


def _settings(**settings: object) -> dict[str, object]:
    return {"recipe": "cross_entropy", **settings}


SAME = (
    "longtail train cross_entropy --seed 0 --data digits-lt --out runs/earlier/old-seed0 "
    "--epochs 3 --batch 16 --root DATA --threads 1"
)


def test_the_command_of_another_plan_is_copied_not_run(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(results, "earlier", SAME)
    _run(results, settings=_settings(epochs=3, batch=16))
    assert capsys.readouterr().out.endswith("is that of earlier/old-seed0\n")
    copied = json.loads((results / "later" / "new-seed0.json").read_text())
    assert (copied["plan"], copied["arm"], copied["copied"]) == (
        "later",
        "new",
        "earlier/old-seed0",
    )
    assert (copied["row"], copied["command"]) == (ROW, SAME)
    _run(results, settings=_settings(epochs=3, batch=16))
    assert capsys.readouterr().out.endswith("was there\n")


@pytest.mark.parametrize(
    "settings", [{"epochs": 16, "batch": 3}, {"epochs": 3}, {"epochs": 3, "batch": 16, "ema": 0.5}]
)
def test_another_command_is_run(results: Path, settings: dict[str, object]) -> None:
    _write(results, "earlier", SAME)
    with pytest.raises(AssertionError, match="started"):
        _run(results, settings=_settings(**settings))


def test_a_result_without_test_images_is_no_result_of_another_plan(results: Path) -> None:
    _write(results, "earlier", SAME, row={**ROW, "test": None})
    with pytest.raises(AssertionError, match="started"):
        _run(results, settings=_settings(epochs=3, batch=16))


def test_a_result_from_before_a_default_changed_is_not_copied(results: Path) -> None:
    _write(
        results, "earlier", SAME, row={**ROW, "keywords": {"epochs": 3, "batch": 16, "ema": 0.5}}
    )
    with pytest.raises(AssertionError, match="started"):
        _run(results, settings=_settings(epochs=3, batch=16))


def test_what_an_arm_starts_from_is_retrained_if_only_its_result_is_left(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def finish(job: Job, *, apart: bool) -> None:
        assert apart
        started.append(job.folder.name)
        if not job.finished:
            _finish(job)

    monkeypatch.setattr("longtail.experiments.jobs.run_job", finish)
    _write(results, "earlier", SAME)
    before = (results / "earlier" / "old-seed0.json").read_text()
    teachers = {"data": "digits-lt", "settings": _settings(), "arms": {"old": {}}, "seeds": [0]}
    (tmp_path / "earlier.json").write_text(json.dumps(teachers))
    arms = {"new": {"teacher": "{work}/earlier/old-seed0"}}
    _run(results, settings={"recipe": "deit_lt"}, arms=arms, seeds=[1, 2])
    assert started == ["old-seed0", "new-seed1", "new-seed2"], "the teacher once"
    assert (results / "earlier" / "old-seed0.json").read_text() == before
    result = json.loads((results / "later" / "new-seed2.json").read_text())
    assert result["begun_with"] == {"earlier/old-seed0": 0.3}
    assert result["begun_minutes"] == {"earlier/old-seed0": result["row"]["minutes"]}
    assert result["begun_threads"] == {"earlier/old-seed0": 2}
    assert "--teacher runs/earlier/old-seed0" in result["command"]
    pretraining = tmp_path / "work" / "earlier" / "old-seed0" / "pretrain"
    pretraining.mkdir()
    (pretraining / "done").write_text('{"minutes": 7.5}')
    _run(results, settings={"recipe": "deit_lt"}, arms=arms, seeds=[1, 2, 3])
    result = json.loads((results / "later" / "new-seed3.json").read_text())
    # Of an encoder, without the classifier that evaluates it.
    assert result["begun_minutes"] == {"earlier/old-seed0": 7.5}
    assert result["row"]["keywords"]["out"] == "runs/later/new-seed3"  # no folder of this machine


def test_a_plan_that_chooses_keeps_no_test_numbers(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.experiments.jobs.run_job", _finish)
    _run(results, settings=_settings(), judged="validation")
    row = json.loads((results / "later" / "new-seed0.json").read_text())["row"]
    assert (row["test"], row["val"]) == (None, {"top1": 0.4, "balanced": 0.3})


def test_seeds_come_in_turn_and_a_run_that_diverged_has_no_result(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def finish(job: Job, **_: object) -> str | None:
        started.append(job.folder.name)
        if job.folder.name == "b-seed0":
            return "the loss stopped being finite"
        _finish(job)
        return None

    monkeypatch.setattr("longtail.experiments.jobs.run_job", finish)
    _run(results, settings=_settings(), arms={"a": {"epochs": 1}, "b": {"epochs": 2}}, seeds=[0, 1])
    assert started == ["a-seed0", "b-seed0", "a-seed1", "b-seed1"]
    assert sorted(path.stem for path in (results / "later").iterdir()) == [
        "a-seed0",
        "a-seed1",
        "b-seed1",
    ]


def test_committed_results_count_as_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("longtail.experiments.jobs.run_job", _refuse)
    accuracy.run(accuracy.PLANS / "digits_lt_smokes.json", root=tmp_path, work=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 39
    assert all(line.endswith("was there") for line in lines)


def test_a_repeated_plan_has_the_keywords_of_its_results() -> None:
    for path in sorted(accuracy.RESULTS.glob("*/*-seed*.json")):
        result = json.loads(path.read_text())
        plan = json.loads((accuracy.PLANS / f"{result['plan']}.json").read_text())
        settings = {**plan["settings"], **plan["arms"][result["arm"]]}
        unset = {name for name, value in settings.items() if value is None}  # the default of then
        settings = {
            name: value
            for name, value in settings.items()
            if value is not None and "{" not in str(value)
        }
        recipe = read(settings.pop("recipe"))
        settings = current_keywords(recipe.name, settings)
        today = {name: parameter.default for name, parameter in recipe.parameters.items()}
        used = run_keywords(result["row"]["recipe"], result["row"]["keywords"])
        running = {name for name, value in used.items() if str(value).startswith("runs/")}
        requested = {
            name: settings.get(name, default)
            for name, default in today.items()
            if name in used and name not in running | unset
        }
        assert {name: used[name] for name in requested} == requested, path


@pytest.mark.parametrize(
    ("arms", "seeds", "named"), [(["student,vit"], [], "student,vit"), ([], [0, 7], "[7]")]
)
def test_arms_and_seeds_that_a_plan_lacks_are_refused(
    arms: list[str], seeds: list[int], named: str
) -> None:
    plan = {"arms": {"student": {}, "vit": {}}, "seeds": [0, 1]}
    accuracy.check(plan, ["student", "vit"], [0, 1])
    with pytest.raises(SystemExit, match=f"got {re.escape(named)}: take"):
        accuracy.check(plan, arms, seeds)


def test_the_page_says_what_was_copied_and_what_a_run_started_from() -> None:
    scores = {
        "top1": 0.5,
        "balanced": 0.5,
        "groups": {"few": 0.1},
        "ece": 0.1,
        "images": 1,
        "group_rule": "own",
    }
    data = {"train_images": 1, "caveats": []}
    row = {
        **ROW,
        "test": scores,
        "data": data,
        "parameters": 1,
        "tta": "none",
        "versions": {"torch": "2"},
        "selection": "last",
    }
    result = {
        "arm": "new",
        "command": SAME,
        "commit": "abc",
        "row": row,
        "copied": "earlier/old-seed0",
        "begun_with": {"first/one-seed0": 0.75, "first/two-seed0": None},
        "begun_minutes": {"first/one-seed0": 31.04, "first/two-seed0": 1.0},
        "begun_threads": {"first/one-seed0": 3, "first/two-seed0": 1},
    }
    text = "\n".join(
        render._accuracy({"arms": {"new": {}}, "seeds": [0]}, [result], image="images/later.svg")
    )
    assert "`new` with seed 0 is earlier/old-seed0" in text
    assert (
        "Started from: `new` with seed 0: first/one-seed0 (75.0% balanced on validation);"
        " `new` with seed 0: first/two-seed0." in text
    )
    assert "| 2.0 + 94.1 |" in text  # minutes times threads


def test_a_command_says_what_was_a_default_then_and_is_no_longer() -> None:
    row = {"recipe": "ldam", "keywords": {"rho": 0.9, "margin": 0.4, "epochs": 60, "gone": 1}}
    command = render._command(
        {"command": "longtail train ldam --margin 0.4 --root DATA --threads 1", "row": row}
    )
    assert command == "longtail train ldam --margin 0.4 --rho 0.9 --root DATA --threads 1"


def test_a_plan_of_speeds_has_the_results_that_were_measured_for_it() -> None:
    plans = {
        path.stem
        for path in accuracy.PLANS.glob("*.json")
        if "arms" not in json.loads(path.read_text())
    }
    assert "livt_speed" in plans
    assert plans <= {
        json.loads(path.read_text())["plan"] for path in (accuracy.RESULTS / "speed").glob("*.json")
    }


def test_every_table_is_on_the_page_and_contrasts_name_arms_of_plans() -> None:
    content = published_page.contrasts()
    entries = content.pop("contrasts")
    listed = {
        table: entry for paper in content.values() for table, entry in paper["tables"].items()
    }
    assert {*published.tables(), *published.quotes()} <= {*listed}
    for entry in entries:
        assert entry["table"] in listed
        for side in ("better", "worse"):
            plan = entry.get("worse_plan", entry["plan"]) if side == "worse" else entry["plan"]
            path = Path(render.__file__).parent / "plans" / f"{plan}.json"
            assert entry[side] in json.loads(path.read_text(encoding="utf-8"))["arms"], entry
    for entry in listed.values():
        assert {*entry.get("sweeps", ())} <= {*named_sweeps()}
        assert (Path(render.__file__).parents[1] / "docs" / entry.get("page", "index.md")).exists()


@pytest.mark.parametrize(
    ("better", "outcome"),
    [
        ((0.54, 0.56, 0.55), "agrees"),
        ((0.45, 0.44, 0.46), "disagrees"),
        ((0.51, 0.48, 0.51), "undecided"),
        ((0.51, 0.53), "untested"),
        ((), "untested"),
    ],
)
def test_an_outcome_is_computed_from_results(
    tmp_path: Path, better: tuple[float, ...], outcome: str
) -> None:
    folder = tmp_path / "results" / "plan"
    folder.mkdir(parents=True)
    path = next((Path(render.__file__).parent / "results" / "digits_lt_demo").glob("*.json"))
    for arm, values in (("new", better), ("old", (0.5, 0.5, 0.5))):
        for seed, value in enumerate(values):
            content = json.loads(path.read_text(encoding="utf-8"))
            content["row"] |= {"seed": seed, "test": {**content["row"]["test"], "top1": value}}
            (folder / f"{arm}-seed{seed}.json").write_text(json.dumps({**content, "arm": arm}))
    entry = {"plan": "plan", "better": "new", "worse": "old"}
    compared = published_page.compared(entry, tmp_path)
    assert compared.outcome == outcome
    if outcome == "agrees":  # by hand: 5 +- 4.303 * 1 / sqrt(3)
        assert (compared.low, compared.high) == pytest.approx((5 - 2.4843, 5 + 2.4843), abs=1e-3)
