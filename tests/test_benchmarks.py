"""The runner of plans does what is missing, once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import accuracy
import pytest
import render

from longtail.recipes.signatures import read

ROW = {
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
    monkeypatch.setattr("subprocess.run", _refuse)
    return folder


def _refuse(*words: object, **_: object) -> None:
    raise AssertionError(f"started {words}")


def _write(results: Path, plan: str, command: str, *, row: dict[str, object] = ROW) -> None:
    (results / plan).mkdir(parents=True)
    (results / plan / "old-seed0.json").write_text(
        json.dumps({"plan": plan, "arm": "old", "command": command, "row": row})
    )


def _run(results: Path, **settings: object) -> str:
    plan = {
        "data": "digits-lt",
        "settings": {"recipe": "cross_entropy", **settings},
        "arms": {"new": {}},
    }
    return accuracy.run(plan, "later", "new", 0, root=Path("DATA"), work=results.parent / "work")


SAME = "longtail train cross_entropy --seed 0 --data digits-lt --out runs/earlier/old-seed0 --epochs 3 --batch 16 --root DATA --threads 1"


def test_the_command_of_another_plan_is_copied_not_run(results: Path) -> None:
    _write(results, "earlier", SAME)
    assert _run(results, epochs=3, batch=16).endswith("is that of earlier/old-seed0")
    copied = json.loads((results / "later" / "new-seed0.json").read_text())
    assert (copied["plan"], copied["arm"], copied["copied"]) == (
        "later",
        "new",
        "earlier/old-seed0",
    )
    assert (copied["row"], copied["command"]) == (ROW, SAME)
    assert _run(results, epochs=3, batch=16).endswith("was there")


@pytest.mark.parametrize(
    "settings", [{"epochs": 16, "batch": 3}, {"epochs": 3}, {"epochs": 3, "batch": 16, "tau": 0.5}]
)
def test_another_command_is_run(results: Path, settings: dict[str, object]) -> None:
    _write(results, "earlier", SAME)
    with pytest.raises(AssertionError, match="started"):
        _run(results, **settings)


def test_a_result_without_test_images_is_no_result_of_another_plan(results: Path) -> None:
    _write(results, "earlier", SAME, row={**ROW, "test": None})
    with pytest.raises(AssertionError, match="started"):
        _run(results, epochs=3, batch=16)


def test_a_result_from_before_a_default_changed_is_not_copied(results: Path) -> None:
    _write(
        results, "earlier", SAME, row={**ROW, "keywords": {"epochs": 3, "batch": 16, "ema": 0.5}}
    )
    with pytest.raises(AssertionError, match="started"):
        _run(results, epochs=3, batch=16)


def _finish(words: list[str], **_: object) -> SimpleNamespace:
    if words[0] != "git":
        out = Path(words[words.index("--out") + 1])
        out.mkdir()
        keywords = {"epochs": 3, "batch": 16, "out": str(out)}
        (out / "row.json").write_text(
            json.dumps({**ROW, "keywords": keywords, "val": {"top1": 0.4, "balanced": 0.3}})
        )
    return SimpleNamespace(returncode=0, stdout="abc")


def test_what_an_arm_begins_with_is_trained_again_if_only_its_result_is_left(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def finish(words: list[str], **_: object) -> SimpleNamespace:
        started.append(Path(words[words.index("--out") + 1]).name if "--out" in words else "")
        return _finish(words)

    monkeypatch.setattr("subprocess.run", finish)
    monkeypatch.setattr(accuracy, "PLANS", tmp_path)
    _write(results, "earlier", SAME)
    before = (results / "earlier" / "old-seed0.json").read_text()
    teachers = {"data": "digits-lt", "settings": {"recipe": "cross_entropy"}, "arms": {"old": {}}}
    (tmp_path / "earlier.json").write_text(json.dumps(teachers))
    plan = {
        "data": "digits-lt",
        "settings": {"recipe": "deit_lt"},
        "arms": {"new": {"teacher": "{work}/earlier/old-seed0"}},
    }
    for seed in (1, 2):
        assert accuracy.run(
            plan, "later", "new", seed, root=Path("DATA"), work=tmp_path / "work"
        ).endswith("is new")
    assert [name for name in started if name] == [
        "old-seed0",
        "new-seed1",
        "new-seed2",
    ]  # the teacher once
    assert (results / "earlier" / "old-seed0.json").read_text() == before
    whole = json.loads((results / "later" / "new-seed2.json").read_text())
    assert whole["begun_with"] == {"earlier/old-seed0": 0.3}
    assert whole["begun_minutes"] == {"earlier/old-seed0": whole["row"]["minutes"]}
    assert whole["begun_threads"] == {"earlier/old-seed0": 2}
    (tmp_path / "work" / "earlier" / "old-seed0" / "pretrain").mkdir()
    (tmp_path / "work" / "earlier" / "old-seed0" / "pretrain" / "done").write_text(
        '{"minutes": 7.5}'
    )
    accuracy.run(plan, "later", "new", 3, root=Path("DATA"), work=tmp_path / "work")
    whole = json.loads((results / "later" / "new-seed3.json").read_text())
    assert whole["begun_minutes"] == {
        "earlier/old-seed0": 7.5
    }  # of an encoder, without the classifier that judges it
    assert whole["row"]["keywords"]["out"] == "runs/later/new-seed3"  # no folder of this machine


def test_a_plan_that_chooses_keeps_no_test_numbers(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.run", _finish)
    plan = {
        "data": "digits-lt",
        "settings": {"recipe": "cross_entropy"},
        "arms": {"new": {}},
        "judged": "validation",
    }
    assert accuracy.run(
        plan, "later", "new", 0, root=Path("DATA"), work=results.parent / "work"
    ).endswith("is new")
    row = json.loads((results / "later" / "new-seed0.json").read_text())["row"]
    assert (row["test"], row["val"]) == (None, {"top1": 0.4, "balanced": 0.3})


def test_an_arm_takes_a_setting_of_its_plan_away() -> None:
    plan = {"data": "cifar10-lt", "settings": {"recipe": "vit", "epochs": 3, "repeats": 1}}
    words = accuracy.command(
        plan,
        {"epochs": None, "repeats": 2},
        seed=0,
        out=Path("out"),
        work=Path("work"),
        root=Path("root"),
    )
    assert "--epochs" not in words
    assert words[words.index("--repeats") + 1] == "2"


def test_a_plan_run_again_does_what_its_results_did() -> None:
    for path in sorted(accuracy.RESULTS.glob("*/*-seed*.json")):
        result = json.loads(path.read_text())
        plan = json.loads((accuracy.PLANS / f"{result['plan']}.json").read_text())
        settings = {**plan["settings"], **plan["arms"][result["arm"]]}
        settings = {
            name: value
            for name, value in settings.items()
            if value is not None and "{" not in str(value)
        }
        today = {name: own.default for name, own in read(settings.pop("recipe")).parameters.items()}
        used = result["row"]["keywords"]
        begun = {name for name, value in used.items() if str(value).startswith("runs/")}
        asked = {
            name: settings.get(name, default)
            for name, default in today.items()
            if name in used and name not in begun
        }
        assert {name: used[name] for name in asked} == asked, path


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


def test_the_page_says_what_was_copied_and_what_a_run_began_with() -> None:
    scores = {
        "top1": 0.5,
        "balanced": 0.5,
        "groups": {"few": 0.1},
        "ece": 0.1,
        "images": 1,
        "group_rule": "own",
    }
    data = {"train_images": 1, "marks": []}
    row = {
        **ROW,
        "test": scores,
        "data": data,
        "parameters": 1,
        "tta": "none",
        "versions": {"torch": "2"},
        "selection": "last",
    }
    found = {
        "arm": "new",
        "command": SAME,
        "commit": "abc",
        "row": row,
        "copied": "earlier/old-seed0",
        "begun_with": {"first/one-seed0": 0.75},
        "begun_minutes": {"first/one-seed0": 31.04},
        "begun_threads": {"first/one-seed0": 3},
    }
    text = "\n".join(
        render._accuracy({"arms": {"new": {}}, "seeds": [0]}, [found], image="images/later.svg")
    )
    assert "`new` with seed 0 is earlier/old-seed0" in text
    assert "Began with: `new` with seed 0: first/one-seed0 (75.0% balanced on validation)." in text
    assert "| 2.0 + 93.1 |" in text  # minutes times threads


def test_a_command_says_what_was_a_default_then_and_is_no_longer() -> None:
    row = {"recipe": "ldam", "keywords": {"rho": 0.9, "margin": 0.4, "epochs": 60, "gone": 1}}
    said = render._command(
        {"command": "longtail train ldam --margin 0.4 --root DATA --threads 1", "row": row}
    )
    assert said == "longtail train ldam --margin 0.4 --rho 0.9 --root DATA --threads 1"


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
