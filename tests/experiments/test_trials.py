"""The trials of a search resume as if nothing had happened, and only validation chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtail.errors import LongtailError
from longtail.experiments import search as searching
from longtail.experiments import trials
from longtail.experiments.jobs import Job

from .test_search import plan, run


class _Sealed(dict[str, Any]):
    """A test result that nobody may look at."""

    def __getitem__(self, name: str) -> Any:
        raise AssertionError("the test set was read")


def test_the_score_is_that_of_validation() -> None:
    requested = plan()
    val = {"scores": {"balanced": 0.6, "top1": 0.7, "many": 0.8, "few": None}}
    row: Any = {"val": val, "test": _Sealed(balanced=0.9)}
    assert requested.score(row) == 0.6
    assert plan(metric="val/many").score(row) == 0.8
    with pytest.raises(ValueError, match="cannot be measured on the validation images"):
        plan(metric="val/few").score(row)
    with pytest.raises(ValueError, match="a search needs validation images"):
        requested.score(row | {"val": None})


def quick(score: Callable[[Job], float | None], seen: list[Job]) -> Callable[..., str | None]:
    """In the place of training: a row that has a score on validation, and nothing on test."""

    def do(job: Job, *, apart: bool = False) -> str | None:
        seen.append(job)
        value = score(job)
        if value is None:
            return "the loss stopped being finite"
        job.folder.mkdir(parents=True, exist_ok=True)
        val = {"scores": {"balanced": value}, "images": 41}
        (job.folder / "row.json").write_text(json.dumps({"val": val}))
        return None

    return do


@pytest.fixture
def trained(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[Job], float | None]], list[Job]]:
    monkeypatch.setattr(searching, "_compare", lambda requested, best: None)
    monkeypatch.setattr(
        "longtail.records.row.read_row",
        lambda folder: json.loads((folder / "row.json").read_text()),
    )

    def prepare(score: Callable[[Job], float | None]) -> list[Job]:
        seen: list[Job] = []
        monkeypatch.setattr(trials, "run_job", quick(score, seen))
        return seen

    return prepare


def near(job: Job) -> float:
    return 1 - abs(float(job.keywords["tau"]) - 1.0)


def test_a_search_that_was_interrupted_goes_on_as_if_it_was_not(
    tmp_path: Path, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        "space": {"tau": "0.5..1.5", "lr": "log:0.01..0.3", "network": "fast_cnn,resnet32"},
        "settings": {"epochs": "2"},
    }
    complete = trained(near)
    run(tmp_path / "whole", trials=14, **settings)
    assert len(complete) == 14
    assert all(job.keywords["epochs"] == 2 and job.seed == 0 for job in complete)
    assert len({(job.keywords["tau"], job.keywords["lr"]) for job in complete}) == 14

    def killed(job: Job) -> float:
        if job.folder.name in ("003", "012") and not (tmp_path / job.folder.name).exists():
            (tmp_path / job.folder.name).touch()
            raise KeyboardInterrupt
        return near(job)

    parts = trained(killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", trials=14, **settings)
    capsys.readouterr()
    run(tmp_path / "parts", trials=14, **settings)
    output = capsys.readouterr().out
    assert "11 of 14 trials were done before, 1 more were started" in output
    assert [job.keywords for job in parts if job.folder.name not in ("003", "012")] == [
        job.keywords for job in complete if job.folder.name not in ("003", "012")
    ]
    assert [job.folder.name for job in parts].count("012") == 2, (
        "the trial that had begun is continued in its own folder"
    )
    assert "test images were not used" in output
    assert (tmp_path / "parts" / "search.svg").read_text().count("<circle") == 3 * 14

    done = trained(near)
    run(tmp_path / "parts", trials=14, **settings)
    assert not done, "a search that is done has nothing to do"
    run(tmp_path / "parts", trials=15, **settings)
    assert len(done) == 1


def test_a_search_learns_which_values_are_good(tmp_path: Path, trained: Any) -> None:
    seen = trained(near)
    run(tmp_path, trials=40, space={"tau": "0.5..1.5"})
    early, late = seen[:10], seen[10:]  # the first ten are drawn blindly
    assert sum(map(near, late)) / len(late) > sum(map(near, early)) / len(early)
    assert max(map(near, seen)) > 0.99


def test_a_trial_that_has_learnt_something_is_continued_and_not_given_up(
    tmp_path: Path, trained: Any
) -> None:
    def failing(job: Job) -> float:
        if job.folder.name == "001":
            (job.folder / "train").mkdir(parents=True)
            (job.folder / "train" / "last.pt").touch()
            raise ValueError("expected an image, but x.png cannot be read")
        return near(job)

    trained(failing)
    with pytest.raises(ValueError, match=r"x\.png cannot be read"):
        run(tmp_path / "run", space={"tau": "0.5..1.5"}, trials=4)
    repeated = trained(near)
    run(tmp_path / "run", space={"tau": "0.5..1.5"}, trials=4)
    assert "001" in [job.folder.name for job in repeated]


def test_another_search_in_the_same_folder_is_refused(tmp_path: Path, trained: Any) -> None:
    trained(near)
    run(tmp_path, trials=1, space={"tau": "0.5..1.5"})
    run(tmp_path, trials=1, space={"tau": "0.5..1.5"}, threads=2, device="cpu")
    with pytest.raises(
        ValueError,
        match=r"search: \{'tau': '0.5..1.5'\} in the folder, \{'tau': '0.5..2'\} requested",
    ):
        run(tmp_path, trials=1, space={"tau": "0.5..2"})
    with pytest.raises(ValueError, match="seed: 0 in the folder, 3 requested"):
        run(tmp_path, trials=1, space={"tau": "0.5..1.5"}, seeds=[3])


def test_settings_that_were_tried_are_not_trained_twice(
    tmp_path: Path, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = trained(near)
    run(tmp_path, trials=8, space={"tau": "0.5,1.0"})
    assert len(seen) == 2
    assert "(same as trial " in capsys.readouterr().out


def test_trials_that_diverge_are_counted_and_lose(
    tmp_path: Path, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(lambda job: None if job.keywords["tau"] > 1.0 else near(job))
    run(tmp_path / "some", trials=6, space={"tau": "0.5..1.5"})
    assert "diverged" in capsys.readouterr().out
    trained(lambda job: None)
    with pytest.raises(ValueError, match="all 3 trials diverged"):
        run(tmp_path / "all", trials=3, space={"tau": "0.5..1.5"})


def test_a_defect_in_a_trial_ends_the_search(tmp_path: Path, trained: Any) -> None:
    trained(lambda job: (_ for _ in ()).throw(ValueError("cannot reshape array")))
    with pytest.raises(ValueError, match="cannot reshape"):
        run(tmp_path / "none", trials=3, space={"tau": "0.5..1.5"})
    assert not list((tmp_path / "none").glob("trials/*/row.json"))


def test_settings_that_do_not_go_together_do_not_end_a_search(
    tmp_path: Path, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def picky(job: Job) -> float:
        if job.keywords["tau"] > 1.0:
            raise LongtailError("expected another tau")
        return near(job)

    trained(picky)
    run(tmp_path / "some", trials=8, space={"tau": "0.5..1.5"})
    assert "warning: " in capsys.readouterr().err
    trained(lambda job: (_ for _ in ()).throw(LongtailError("expected images")))
    with pytest.raises(ValueError, match="expected images"):
        run(tmp_path / "none", trials=2, space={"tau": "0.5..1.5"})


def test_a_later_duplicate_does_not_replace_a_trial(tmp_path: Path) -> None:
    requested = plan({"tau": "0.5,1.0"}, out=tmp_path)
    study = trials.open_study(requested)
    same = [trials._new_trial(requested, study) for _ in range(8)]
    later = next(trial for trial in same[1:] if trial.params == same[0].params)
    study.tell(later.number, 0.5)
    assert trials._duplicate(requested, study, same[0]) is None, (
        "the first of equal trials has to be there, if it wins"
    )
