"""The plan of a sweep, without training; and a sweep over the data, with its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import longtail
from longtail.data.splits import held_out, tail_counts
from longtail.experiments.jobs import Job
from longtail.experiments.spec import Arm, Sweep, named_sweeps
from longtail.experiments.sweeps import describe, plan_jobs


def plan(*, out: Path = Path("out"), jobs: int = 1, **values: Any) -> list[Job]:
    return plan_jobs(describe(**values), out, at_once=jobs)


def name_sweep(monkeypatch: pytest.MonkeyPatch, name: str, sweep: Sweep) -> None:
    sweeps = {**named_sweeps(), name: sweep}
    monkeypatch.setattr("longtail.experiments.sweeps.named_sweeps", lambda: sweeps)


def test_a_grid_of_recipes_keywords_and_seeds() -> None:
    jobs = plan(
        recipes="cross_entropy,balanced_softmax",
        data="digits-lt",
        seeds=[0, 3],
        grid={"lr": "0.1,none", "epochs": 2},
        tta="flip",
    )
    assert len({job.folder for job in jobs}) == len(jobs) == 8
    assert jobs[0].folder == Path("out/cross_entropy-lr=0.1-seed=0")
    assert jobs[3].folder == Path("out/cross_entropy-lr=None-seed=3")
    assert {job.keywords["epochs"] for job in jobs} == {2}
    assert {job.keywords["lr"] for job in jobs} == {0.1, None}
    assert jobs[0].flags == {"tta": "flip"}


def test_values_from_python_and_from_text_make_the_same_runs() -> None:
    arguments: dict[str, Any] = {"recipes": "balanced_softmax", "data": "digits-lt"}
    grids = ({"tau": "0.5,1", "imbalance": "10,none"}, {"tau": [0.5, 1], "imbalance": [10, None]})
    text, python = (plan(**arguments, grid=grid) for grid in grids)
    assert [job.call() for job in text] == [job.call() for job in python]


def test_recipes_of_one_name_in_two_modules_have_different_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("first_of_two", "second_of_two"):
        (tmp_path / f"{module}.py").write_text("def mine(run, data): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    jobs = plan(
        recipes=["first_of_two:mine", "second_of_two:mine", "cross_entropy"], data="digits-lt"
    )
    assert [job.folder.name for job in jobs] == [
        "first_of_two.mine-seed=0",
        "second_of_two.mine-seed=0",
        "cross_entropy-seed=0",
    ]
    (job,) = plan(recipes="first_of_two:mine", data="digits-lt")
    assert job.folder.name == "mine-seed=0"


def test_runs_do_not_go_into_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path / "birds")
    with pytest.raises(ValueError, match="expected a folder outside of the data"):
        longtail.sweep("cross_entropy", ".")
    with pytest.raises(ValueError, match="expected a folder outside of the data"):
        longtail.search("cross_entropy", ".", {"epochs": "1,2"})
    assert not list(Path().iterdir())


def test_a_named_sweep_and_what_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(
        recipes=("balanced_softmax",),
        data="digits-lt",
        seeds=(1, 2),
        grid={"tau": (0.5, 1.0)},
        flags={"imbalance": 10.0},
    )
    name_sweep(monkeypatch, "tau", sweep)
    jobs = plan(name="tau")
    assert [(job.keywords["tau"], job.seed) for job in jobs] == [
        (0.5, 1),
        (0.5, 2),
        (1.0, 1),
        (1.0, 2),
    ]
    assert jobs[0].flags["imbalance"] == 10.0
    assert [job.seed for job in plan(name="tau", seeds=[7], grid={"tau": "2"})] == [7]
    assert {job.flags["imbalance"] for job in plan(name="tau", imbalance=50.0)} == {50.0}


def test_keywords_that_change_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(
        recipes=("balanced_softmax",),
        data="digits-lt",
        zip=({}, {"batch": 16, "lr": 0.0125}, {"batch": 32, "lr": 0.025}),
        grid={"tau": (0.5, 1.0)},
    )
    name_sweep(monkeypatch, "batch", sweep)
    jobs = plan(name="batch")
    assert len({job.folder for job in jobs}) == 6
    assert {(job.keywords["batch"], job.keywords["lr"]) for job in jobs} == {
        (128, None),
        (16, 0.0125),
        (32, 0.025),
    }
    assert jobs[2].folder.name == "balanced_softmax-batch=16-lr=0.0125-tau=0.5-seed=0"


def test_runs_that_others_start_from(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(
        recipes=("livt",),
        data="digits-lt",
        seeds=(0, 1),
        prerequisites={
            "lt": Arm(recipe="masked_autoencoder"),
            "bal": Arm(recipe="masked_autoencoder", data="other", settings={"images": 50}),
        },
        grid={"pretrained": ("{lt}", "{bal}")},
    )
    name_sweep(monkeypatch, "transfer", sweep)
    jobs = plan(name="transfer")
    assert [(job.recipe.name, job.data, job.folder.name, job.compared) for job in jobs[:4]] == [
        ("masked_autoencoder", "digits-lt", "lt-seed=0", False),
        ("masked_autoencoder", "digits-lt", "lt-seed=1", False),
        ("masked_autoencoder", "other", "bal-seed=0", False),
        ("masked_autoencoder", "other", "bal-seed=1", False),
    ]
    assert jobs[2].keywords["images"] == 50
    assert [(job.folder.name, job.keywords["weights"]) for job in jobs[4:]] == [
        ("livt-pretrained=lt-seed=0", str(Path("out/first/lt-seed=0"))),
        ("livt-pretrained=lt-seed=1", str(Path("out/first/lt-seed=1"))),
        ("livt-pretrained=bal-seed=0", str(Path("out/first/bal-seed=0"))),
        ("livt-pretrained=bal-seed=1", str(Path("out/first/bal-seed=1"))),
    ]
    given_one = plan(name="transfer", grid={"pretrained": "runs/mine"})
    assert [job.keywords["weights"] for job in given_one] == ["runs/mine", "runs/mine"]


def teachers(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(
        recipes=("deit_lt",),
        data="digits-lt",
        prerequisites={
            "flat": Arm(recipe="ldam"),
            "strong": Arm(recipe="ldam", settings={"rho": 0.0}),
            "unused": Arm(recipe="ldam"),
        },
        zip=({"teacher": "{strong}", "defer": 1.0}, {"teacher": "{flat}"}),
    )
    name_sweep(monkeypatch, "teachers", sweep)


def test_prerequisites_may_change_together_with_other_keywords(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    teachers(monkeypatch)
    jobs = plan(name="teachers")
    assert [job.folder.name for job in jobs[:2]] == ["flat-seed=0", "strong-seed=0"]
    assert [(job.folder.name, job.keywords["teacher"]) for job in jobs[2:]] == [
        ("deit_lt-teacher=strong-defer=1.0-seed=0", str(Path("out/first/strong-seed=0"))),
        ("deit_lt-teacher=flat-seed=0", str(Path("out/first/flat-seed=0"))),
    ]
    mine = plan(name="teachers", grid={"teacher": "runs/mine"})
    assert [job.keywords["teacher"] for job in mine] == ["runs/mine"] * 2
    named = plan(name="teachers", grid={"teacher": "{flat},{unused}"})
    assert [job.folder.name for job in named if not job.compared] == [
        "flat-seed=0",
        "unused-seed=0",
    ], "what was typed is trained"


def test_keywords_for_a_prerequisite_hold_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    teachers(monkeypatch)
    short = plan(name="teachers", grid={"teacher_epochs": "5", "teacher_view": "weak"})
    assert [job.keywords["epochs"] for job in short[:2]] == [5, 5]
    students = {(job.keywords["teacher_epochs"], job.keywords["teacher_view"]) for job in short[2:]}
    assert students == {(60, "weak")}
    radius = plan(name="teachers", grid={"teacher_rho": "0.8"})
    assert [job.keywords["rho"] for job in radius[:2]] == [0.8, 0.0], "still two teachers"


def test_every_cut_of_the_data_has_its_prerequisites(monkeypatch: pytest.MonkeyPatch) -> None:
    teachers(monkeypatch)
    jobs = plan(name="teachers", grid={"imbalance": "10,50", "teacher": "{flat}"})
    prerequisites = [(job.folder.name, job.flags["imbalance"]) for job in jobs if not job.compared]
    assert prerequisites == [
        ("flat-imbalance=10.0-seed=0", 10.0),
        ("flat-imbalance=50.0-seed=0", 50.0),
    ]
    for job in jobs:
        if job.compared:
            wanted = f"flat-imbalance={job.flags['imbalance']}-seed=0"
            assert Path(job.keywords["teacher"]).name == wanted


def test_keywords_of_one_recipe_hold_for_it_alone_and_typed_ones_for_all() -> None:
    jobs = plan(name="livt-from-scratch", seeds=[0])
    # And livt has 200 epochs of pretraining.
    assert [job.keywords["epochs"] for job in jobs] == [300, 300, 100]
    jobs = plan(name="livt-from-scratch", seeds=[0], grid={"epochs": "5"})
    assert {job.keywords["epochs"] for job in jobs} == {5}
    short = plan(name="livt-from-scratch", seeds=[0], grid={"epochs": 3, "pretrain_epochs": 2})
    assert [job.keywords.get("pretrain_epochs") for job in short] == [None, None, 2]
    with pytest.raises(ValueError, match=r"unknown keyword of .* 'pretrain_epoch'"):
        plan(name="livt-from-scratch", grid={"pretrain_epoch": 2})


@pytest.mark.parametrize("name", ["components", "students", "convergence", "release"])
def test_in_thirty_epochs_reweighting_starts_early_enough_to_matter(name: str) -> None:
    arms = [job.keywords for job in plan(name=f"deit-lt-{name}", seeds=[0]) if job.compared]
    assert {arm["defer"] for arm in arms} == ({0.8, 1.0} if name == "components" else {0.8})
    # Mixing ends for all arms at once.
    assert {(arm["mix_until"], arm["repeats"]) for arm in arms} == {(0.8, 1)}


def test_parallel_runs_have_one_thread() -> None:
    (job,) = plan(recipes="cross_entropy", data="digits-lt")
    assert "threads" not in job.flags
    (job,) = plan(recipes="cross_entropy", data="digits-lt", jobs=2)
    assert job.flags["threads"] == 1


def test_all_test_domains(tmp_path: Path) -> None:
    lines = [f"{n}.png,{n % 2},{'abc'[n % 3]}" for n in range(12)]
    for n in range(12):
        (tmp_path / f"{n}.png").touch()
    (tmp_path / "list.csv").write_text("\n".join(["path,label,domain", *lines]))
    values: dict[str, Any] = {"recipes": "cross_entropy", "data": str(tmp_path / "list.csv")}
    values["grid"] = {"test_domain": "all"}
    assert [job.flags["test_domain"] for job in plan(**values)] == ["a", "b", "c"]
    assert describe(**values).swept_flags == ["test_domain"]
    some = plan(**values, train_domain="a")
    assert [(job.flags["test_domain"], job.flags["train_domain"]) for job in some] == [
        ("b", "a"),
        ("c", "a"),
    ]
    values["grid"] = {"test_domain": "c", "train_domain": "a,b;a"}
    assert [job.flags["train_domain"] for job in plan(**values)] == ["a,b", "a"]
    with pytest.raises(ValueError, match="--test-domain needs data with domains"):
        plan(recipes="cross_entropy", data="digits-lt", grid={"test_domain": "all"})


@pytest.mark.parametrize("name", ["deit-lt-baselines", "deit-lt-tokens", "livt-from-scratch"])
def test_recipes_are_compared_with_one_network(name: str) -> None:
    assert len({job.keywords["network"] for job in plan(name=name) if job.compared}) == 1


@pytest.mark.parametrize("name", named_sweeps())
def test_named_sweeps_can_be_planned(name: str) -> None:
    assert plan(name=name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grid": {"tau": "1,1.0"}}, r"the sweep contains balanced_softmax-tau=1.0 more than once"),
        ({"recipes": "balanced_softmax,logit_adjustment"}, "more than once"),
        ({"grid": {"imbalance": "10,x"}}, "expected imbalance to be float"),
        ({"grid": {"imbalances": "10"}}, "unknown keyword of balanced_softmax 'imbalances'"),
        ({"grid": {"imbalance": "10"}, "imbalance": 50.0}, "remove one of them"),
        ({"seeds": [1, 1]}, "seeds must be different, got 1,1"),
        ({"name": "livt-tao"}, "did you mean livt-tau"),
        ({"data": None}, "a sweep needs data"),
        ({"recipes": None}, "a sweep needs recipes"),
    ],
)
def test_mistakes_are_named_before_anything_runs(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**{"recipes": "balanced_softmax", "data": "digits-lt", **values})


def test_an_architecture_holds_for_the_runs_that_others_start_from() -> None:
    jobs = plan(name="livt-tau", grid={"network": "vit_tiny"})
    # As in figure 3.
    assert {job.keywords["test_prior"] for job in jobs if job.compared} == {"uniform"}
    assert {job.keywords["network"] for job in jobs} == {"vit_tiny"}
    jobs = plan(name="deit-lt-students", grid={"teacher_network": "resnet32"})
    assert {job.keywords["network"] for job in jobs if not job.compared} == {"resnet32"}
    with pytest.raises(ValueError, match="all arms start from mgp, so network can have only one"):
        plan(name="livt-tau", grid={"network": "vit_tiny,vit_mini"})
    probe = {"pretrain_probe_epochs": "1", "pretrain_weight_decay": "0.1"}  # not keywords of livt
    encoder, *_ = plan(name="livt-tau", seeds=[0], grid=probe)
    assert (encoder.keywords["probe_epochs"], encoder.keywords["weight_decay"]) == (1, 0.1)
    with pytest.raises(ValueError, match="unknown keyword of livt 'pretrain_probe_epochs'"):
        # Nothing is pretrained here.
        plan(name="livt-tau", seeds=[0], grid={**probe, "pretrained": "runs/mgp"})
    sizes = {"size": "48", "pretrain_size": "32", "pretrain_epochs": "5", "mask": "0.5"}
    jobs = plan(name="livt-tau", seeds=[0], grid=sizes)
    assert {name: jobs[0].keywords[name] for name in ("size", "epochs", "mask")} == {
        "size": 32,
        "epochs": 5,
        "mask": 0.5,
    }
    arm = {"size": 48, "pretrain_size": None, "pretrain_epochs": 200, "mask": 0.75}
    assert {name: jobs[1].keywords[name] for name in arm} == arm, "the rest is for the encoder"


def test_balanced_pretraining_has_as_many_images_as_long_tailed_pretraining() -> None:
    jobs = {job.data: job for job in plan(name="livt-transfer", seeds=[0]) if not job.compared}
    counts = tail_counts(500, 100, imbalance=100)
    assert jobs["cifar100"].keywords["images"] == sum(n - held_out(n, share=10) for n in counts)
    assert jobs["cifar100"].flags["imbalance"] is None
    assert jobs["cifar100-lt"].keywords["images"] is None


def test_a_sweep_over_the_data_has_a_column_for_each_value(tmp_path: Path) -> None:
    result = longtail.sweep(
        ["cross_entropy", "balanced_softmax"],
        "digits-lt",
        grid={"imbalance": [5, 10], "epochs": 1},
        seeds=[0, 1],
        out=tmp_path / "runs",
        threads=1,
        device="cpu",
    )
    assert len(result.runs) == 8
    assert not result.diverged
    assert result.by == ("imbalance",)
    table = result.table
    assert table is not None
    assert table.columns() == ("method", "imbalance 5", "imbalance 10", "mean", "seeds")
    assert {line.label for line in table.lines} == {"cross_entropy", "balanced_softmax"}
    assert {row[-1] for row in table.cells()} == {"0, 1"}
    repeated = longtail.compare(tmp_path / "runs", by="imbalance")
    assert repeated.cells() == table.cells()
    with pytest.raises(ValueError, match="split"):
        longtail.compare(tmp_path / "runs")


def test_a_sweep_plots_an_analysis_of_all_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_sweep(
        monkeypatch,
        "maps",
        Sweep(
            recipes=("cross_entropy", "balanced_softmax"),
            data="digits-lt",
            grid={"epochs": 1},
            plot={"analysis": "saliency"},
        ),
    )
    result = longtail.sweep(name="maps", out=tmp_path / "runs", device="cpu", threads=1)
    assert [path.name for path in result.plots] == ["maps-saliency.svg"]
    drawing = result.plots[0].read_text()
    assert "the map of cross_entropy" in drawing
    assert "the map of balanced_softmax" in drawing
