"""The plan of a sweep, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtail.cli import flags
from longtail.cli.sweep import plan
from longtail.data.splits import held_out, tail_counts
from longtail.experiments.search import plan as searching
from longtail.experiments.sweeps import SWEEPS


def given(**values: Any) -> dict[str, Any]:
    return {
        name: None if own.default is own.empty else own.default for name, own in flags.SWEEP.items()
    } | values


def test_a_grid_of_recipes_keywords_and_seeds() -> None:
    jobs = plan(
        given(
            recipes="cross_entropy,balanced_softmax",
            data="digits-lt",
            seeds="0,3",
            set=["lr=0.1,none", "epochs=2"],
            out=Path("out"),
        )
    )
    assert len(jobs) == 8
    assert len({job.folder for job in jobs}) == 8
    assert jobs[0].folder == Path("out/cross_entropy-lr=0.1-seed=0")
    assert jobs[3].folder == Path("out/cross_entropy-lr=None-seed=3")
    assert {job.keywords["epochs"] for job in jobs} == {2}
    assert {job.keywords["lr"] for job in jobs} == {0.1, None}
    assert "data" not in jobs[0].flags
    assert jobs[0].flags["tta"] == "none"


def test_recipes_of_one_name_in_two_modules_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("first_of_two", "second_of_two"):
        (tmp_path / f"{module}.py").write_text("def mine(run, data): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    jobs = plan(
        given(
            recipes="first_of_two:mine,second_of_two:mine,cross_entropy",
            data="digits-lt",
            out=Path("out"),
        )
    )
    assert [job.folder.name for job in jobs] == [
        "first_of_two.mine-seed=0",
        "second_of_two.mine-seed=0",
        "cross_entropy-seed=0",
    ]
    assert (
        plan(given(recipes="first_of_two:mine", data="digits-lt", out=Path("out")))[0].folder.name
        == "mine-seed=0"
    )


def test_folders_are_named_by_the_data_wherever_it_is_seen_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path / "birds")
    assert flags.usual_out("auto", ".", 3) == Path("runs/auto-birds-3")
    for words in ({}, {"search": ["epochs=1,2"]}):
        with pytest.raises(ValueError, match="expected a folder outside of the data"):
            (searching if words else plan)(given(recipes="cross_entropy", data=".", **words))
    assert not list(Path().iterdir())
    monkeypatch.chdir(tmp_path)
    assert plan(given(recipes="cross_entropy", data="birds"))[0].folder == Path(
        "runs/sweep-birds/cross_entropy-seed=0"
    )


def test_a_named_sweep_and_what_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {
        "recipes": ("balanced_softmax",),
        "data": "digits-lt",
        "seeds": (1, 2),
        "set": {"tau": (0.5, 1.0)},
        "with": {"imbalance": 10.0},
    }
    monkeypatch.setattr("longtail.cli.sweep.SWEEPS", {**SWEEPS, "tau": spec})
    jobs = plan(given(name="tau"))
    assert [(job.keywords["tau"], job.seed) for job in jobs] == [
        (0.5, 1),
        (0.5, 2),
        (1.0, 1),
        (1.0, 2),
    ]
    assert jobs[0].flags["imbalance"] == 10.0
    assert jobs[0].folder.parent == Path("runs/tau")
    assert [job.seed for job in plan(given(name="tau", seeds="7", set=["tau=2"]))] == [7]
    assert {job.flags["imbalance"] for job in plan(given(name="tau", imbalance=50.0))} == {50.0}


def test_keywords_that_change_together(monkeypatch: pytest.MonkeyPatch) -> None:
    each: tuple[dict[str, Any], ...] = ({}, {"batch": 16, "lr": 0.0125}, {"batch": 32, "lr": 0.025})
    spec = {
        "recipes": ("balanced_softmax",),
        "data": "digits-lt",
        "each": each,
        "set": {"tau": (0.5, 1.0)},
    }
    monkeypatch.setattr("longtail.cli.sweep.SWEEPS", {**SWEEPS, "batch": spec})
    jobs = plan(given(name="batch"))
    assert len({job.folder for job in jobs}) == 6
    assert {(job.keywords["batch"], job.keywords["lr"]) for job in jobs} == {
        (128, None),
        (16, 0.0125),
        (32, 0.025),
    }
    assert jobs[2].folder.name == "balanced_softmax-batch=16-lr=0.0125-tau=0.5-seed=0"


def test_runs_that_others_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {
        "lt": {"recipe": "masked_autoencoder"},
        "bal": {"recipe": "masked_autoencoder", "data": "other", "set": {"images": 50}},
    }
    spec = {
        "recipes": ("livt",),
        "data": "digits-lt",
        "seeds": (0, 1),
        "first": first,
        "set": {"pretrained": ("{lt}", "{bal}")},
    }
    monkeypatch.setattr("longtail.cli.sweep.SWEEPS", {**SWEEPS, "transfer": spec})
    jobs = plan(given(name="transfer", out=Path("out")))
    assert [(job.recipe.name, job.data, job.folder.name, job.compared) for job in jobs[:4]] == [
        ("masked_autoencoder", "digits-lt", "lt-seed=0", False),
        ("masked_autoencoder", "digits-lt", "lt-seed=1", False),
        ("masked_autoencoder", "other", "bal-seed=0", False),
        ("masked_autoencoder", "other", "bal-seed=1", False),
    ]
    assert jobs[2].keywords["images"] == 50
    assert [(job.folder.name, job.keywords["pretrained"]) for job in jobs[4:]] == [
        ("livt-pretrained=lt-seed=0", str(Path("out/first/lt-seed=0"))),
        ("livt-pretrained=lt-seed=1", str(Path("out/first/lt-seed=1"))),
        ("livt-pretrained=bal-seed=0", str(Path("out/first/bal-seed=0"))),
        ("livt-pretrained=bal-seed=1", str(Path("out/first/bal-seed=1"))),
    ]
    given_one = plan(given(name="transfer", set=["pretrained=runs/mine"]))
    assert [job.keywords["pretrained"] for job in given_one] == ["runs/mine", "runs/mine"]


def test_runs_that_others_begin_with_may_change_together_with_other_keywords(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = {
        "flat": {"recipe": "ldam"},
        "strong": {"recipe": "ldam", "set": {"rho": 0.0}},
        "unused": {"recipe": "ldam"},
    }
    each = ({"teacher": "{strong}", "defer": 1.0}, {"teacher": "{flat}"})
    spec = {"recipes": ("deit_lt",), "data": "digits-lt", "first": first, "each": each}
    monkeypatch.setattr("longtail.cli.sweep.SWEEPS", {**SWEEPS, "teachers": spec})
    jobs = plan(given(name="teachers", out=Path("out")))
    assert [job.folder.name for job in jobs[:2]] == ["flat-seed=0", "strong-seed=0"]
    assert [(job.folder.name, job.keywords["teacher"]) for job in jobs[2:]] == [
        ("deit_lt-teacher=strong-defer=1.0-seed=0", str(Path("out/first/strong-seed=0"))),
        ("deit_lt-teacher=flat-seed=0", str(Path("out/first/flat-seed=0"))),
    ]
    assert [
        job.keywords["teacher"] for job in plan(given(name="teachers", set=["teacher=runs/mine"]))
    ] == ["runs/mine"] * 2
    named = plan(given(name="teachers", set=["teacher={flat},{unused}"]))
    assert [job.folder.name for job in named if not job.compared] == [
        "flat-seed=0",
        "unused-seed=0",
    ], "what was typed is trained"
    short = plan(given(name="teachers", set=["teacher_epochs=5", "teacher_view=weak"]))
    assert [job.keywords["epochs"] for job in short[:2]] == [5, 5]
    assert {
        (job.keywords["teacher_epochs"], job.keywords["teacher_view"]) for job in short[2:]
    } == {(60, "weak")}, "said to the teachers"
    assert [
        job.keywords["rho"] for job in plan(given(name="teachers", set=["teacher_rho=0.8"]))[:2]
    ] == [0.8, 0.0], "still two teachers"


def test_keywords_of_one_recipe_are_said_to_it_alone_and_what_is_typed_holds() -> None:
    epochs = {
        job.recipe.name: job.keywords["epochs"]
        for job in plan(given(name="livt-from-scratch", seeds="0"))
    }
    assert epochs == {"vit_scratch": 300, "deit3": 300, "livt": 100}  # and 200 of pretraining
    assert {
        job.keywords["epochs"]
        for job in plan(given(name="livt-from-scratch", seeds="0", set=["epochs=5"]))
    } == {5}
    short = plan(given(name="livt-from-scratch", seeds="0", set=["epochs=3", "pretrain_epochs=2"]))
    assert [job.keywords.get("pretrain_epochs") for job in short] == [None, None, 2]
    with pytest.raises(ValueError, match="unknown keyword of vit_scratch 'pretrain_epoch'"):
        plan(given(name="livt-from-scratch", set=["pretrain_epoch=2"]))
    jobs = {
        job.recipe.name: job.keywords for job in plan(given(name="deit-lt-baselines", seeds="0"))
    }
    assert (jobs["deit_lt"]["defer"], jobs["vit"]["mix_until"], jobs["deit"]["repeats"]) == (
        0.8,
        0.8,
        1,
    )


@pytest.mark.parametrize("name", ["components", "students", "convergence", "release"])
def test_in_thirty_epochs_reweighting_begins_early_enough_to_be_seen(name: str) -> None:
    arms = [job.keywords for job in plan(given(name=f"deit-lt-{name}", seeds="0")) if job.compared]
    assert {arm["defer"] for arm in arms} == ({0.8, 1.0} if name == "components" else {0.8})
    assert {(arm["mix_until"], arm["repeats"]) for arm in arms} == {(0.8, 1)}, (
        "mixing ends for all arms at once"
    )


def test_at_once_means_one_thread_each() -> None:
    (job,) = plan(given(recipes="cross_entropy", data="digits-lt"))
    assert job.flags["threads"] is None
    (job,) = plan(given(recipes="cross_entropy", data="digits-lt", jobs=2))
    assert job.flags["threads"] == 1


@pytest.mark.parametrize("name", SWEEPS)
def test_named_sweeps_can_be_planned(name: str) -> None:
    assert plan(given(name=name))


def test_what_is_typed_holds_against_a_named_sweep() -> None:
    assert {job.flags["protocol"] for job in plan(given(name="batchformer-controls"))} == {"paper"}
    assert {
        job.flags["protocol"]
        for job in plan(given(name="batchformer-controls"), typed=["protocol"])
    } == {"holdout"}


def test_the_same_run_twice_is_refused_before_anything_runs() -> None:
    for twice in ({"set": ["tau=1,1.0"]}, {"recipes": "balanced_softmax,logit_adjustment"}):
        with pytest.raises(ValueError, match=r"expected every run once, got .*balanced_softmax"):
            plan(given(**{"recipes": "balanced_softmax", "data": "digits-lt", **twice}))


def test_an_architecture_holds_for_the_runs_that_others_begin_with() -> None:
    jobs = plan(given(name="livt-tau", set=["network=vit_tiny"]))
    assert {job.keywords["test_prior"] for job in jobs if job.compared} == {"uniform"}, (
        "as in figure 3"
    )
    assert {job.keywords["network"] for job in jobs} == {"vit_tiny"}
    jobs = plan(given(name="deit-lt-students", set=["teacher_network=resnet32"]))
    assert {job.keywords["network"] for job in jobs if not job.compared} == {"resnet32"}
    with pytest.raises(
        ValueError, match="expected one network for mgp, which all arms begin with, got several"
    ):
        plan(given(name="livt-tau", set=["network=vit_tiny,vit_mini"]))
    (encoder, *_) = plan(
        given(
            name="livt-tau", seeds="0", set=["pretrain_probe_epochs=1", "pretrain_weight_decay=0.1"]
        )
    )  # not livt's
    assert (encoder.keywords["probe_epochs"], encoder.keywords["weight_decay"]) == (1, 0.1)
    with pytest.raises(
        ValueError, match="unknown keyword of livt 'pretrain_probe_epochs'"
    ):  # for nothing is pretrained
        plan(
            given(
                name="livt-tau", seeds="0", set=["pretrain_probe_epochs=1", "pretrained=runs/mgp"]
            )
        )
    jobs = plan(
        given(
            name="livt-tau",
            seeds="0",
            set=["size=48", "pretrain_size=32", "pretrain_epochs=5", "mask=0.5"],
        )
    )
    assert {name: jobs[0].keywords[name] for name in ("size", "epochs", "mask")} == {
        "size": 32,
        "epochs": 5,
        "mask": 0.5,
    }
    arm = {"size": 48, "pretrain_size": None, "pretrain_epochs": 200, "mask": 0.75}
    assert {name: jobs[1].keywords[name] for name in arm} == arm, "said to the encoder's own run"


def test_balanced_pretraining_has_as_many_images_as_long_tailed_pretraining() -> None:
    jobs = {
        job.data: job for job in plan(given(name="livt-transfer", seeds="0")) if not job.compared
    }
    counts = tail_counts(500, 100, imbalance=100)
    assert jobs["cifar100"].keywords["images"] == sum(n - held_out(n, share=10) for n in counts)
    assert jobs["cifar100-lt"].keywords["images"] is None
