"""Reproducing: what is run, what it is called, and the remarks that belong to it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
from PIL import Image

from longtail.data.open import open_dataset
from longtail.data.request import DataRequest
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.experiments import reproduce as reproducing
from longtail.experiments.jobs import Job, Printed
from longtail.experiments.reproduce import (
    default_workers,
    describe,
    evaluate,
    plan,
    reproduce,
    reproduce_table,
    reproduction,
    row_of,
    rows_of,
    smoke_of,
)
from longtail.naming import import_function
from longtail.nn import Classifier
from longtail.nn.resnet import LAYERS
from longtail.recipes.costs import parts_of
from longtail.recipes.published import Published, published
from longtail.recipes.signatures import read
from longtail.records.predictions import read_predictions
from longtail.records.row import read_row
from longtail.scoring.scorer import headline_of, scorer_for

FLAGS = {"device": "cpu", "threads": 1, "root": Path("images")}


def planned(name: str, *, smoke: bool = False, **options: Any) -> list[Job]:
    small = smoke_of(name) if smoke else None
    return plan(row_of(name), Path("out"), small, flags=FLAGS, **options)


def test_a_row_runs_with_its_settings_and_seeds() -> None:
    jobs = planned("cifar100-lt-200-balanced-softmax-batchformer")
    assert [job.seed for job in jobs] == [0, 1, 2]
    assert jobs[0].folder == Path("out/seed=0")
    call = jobs[0].call()
    assert (call["data"], call["imbalance"], call["protocol"], call["root"]) == (
        "cifar100-lt",
        200.0,
        "paper",
        Path("images"),
    )
    assert (
        call["network"],
        call["epochs"],
        call["batch"],
        call["batchformer"],
        call["plain_weight"],
    ) == ("resnet32", 685, 512, "on", 1.5)
    assert (
        describe(published()["cifar100-lt-200-balanced-softmax-batchformer"], jobs[0], None)[0]
        == "reproduction"
    )


def test_fewer_epochs_are_a_smoke_and_other_settings_no_reproduction() -> None:
    row = published()["cifar100-lt-paco"]
    for settings, kind in (({"epochs": 10}, "smoke"), ({"lr": "0.1"}, "with other settings")):
        job = planned(row.name, settings=settings)[0]
        described, remarks = describe(row, job, None)
        assert described == kind
        assert remarks[0].startswith("This is not a reproduction: ")
    small = smoke_of(row.name)
    (job,) = planned(row.name, smoke=True)
    kind, remarks = describe(row, job, small)
    assert (kind, job.data, job.seed) == ("smoke", "digits-lt", 0)
    assert "does not verify the published number" in remarks[0]
    assert len(remarks) == 1
    (job,) = planned(row.name, smoke=True, settings={"lr": 0.123})
    kind, remarks = describe(row, job, small)
    assert kind == "smoke"
    assert (
        remarks[1] == "The settings are not those of the band: lr is 0.123 instead of"
        f" {planned(row.name, smoke=True)[0].keywords['lr']}."
    )


def test_processes_share_a_step_as_the_row_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.processes.world_size", lambda: 8)
    (job, *_) = planned("imagenet-lt-vit", batch=128)
    assert (job.keywords["batch"], job.keywords["accumulate"]) == (1024, 1)
    row = row_of("imagenet-lt-vit")
    assert describe(row, job, None, processes=8)[0] == "reproduction"
    (job, *_) = planned("imagenet-lt-balanced-softmax-batchformer")
    row = row_of("imagenet-lt-balanced-softmax-batchformer")
    assert (job.keywords["batch"], job.keywords["batchformer_scope"]) == (128, "global")
    assert describe(row, job, None, processes=8)[0] == "reproduction"
    assert describe(row, job, None)[0] == "reproduction"  # one process, or all of eight


def test_images_that_attend_together_are_kept_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ride = "imagenet-lt-resnet50-ride-batchformer"
    monkeypatch.setattr("longtail.processes.world_size", lambda: 4)
    (job, *_) = planned(ride, batch=100)
    kept = {"batch": 400, "accumulate": 1, "batchformer_scope": "local"}
    assert {name: job.keywords[name] for name in kept} == kept
    assert describe(row_of(ride), job, None, processes=4)[0] == "reproduction"
    assert describe(row_of(ride), job, None)[1][0] == (
        "This is not a reproduction: batch is 400 instead of 100; accumulate is 1 instead of 4;"
        " 400 images attend together instead of 100."
    )
    with pytest.raises(LongtailError, match="100 images attend together in BatchFormer of image"):
        planned(ride, batch=50)
    monkeypatch.setattr("longtail.processes.world_size", lambda: 1)
    for options, message in (
        ({"accumulate": 2}, "--accumulate needs --batch"),
        ({"batch": 8, "settings": {"batch": "8"}}, "batch is given with --batch and with --set"),
    ):
        with pytest.raises(LongtailError, match=message):
            planned(ride, **options)


def test_streamed_images_have_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(32), raising=False)
    assert default_workers(row_of("cifar100-lt-paco")) == 0
    assert default_workers(row_of("pacs-erm")) == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert default_workers(row_of("imagenet-lt-livt")) == 3
    assert planned("imagenet-lt-paco", settings={})[0].flags["workers"] == 3
    assert planned("imagenet-lt-paco", smoke=True)[0].flags["workers"] == 0
    jobs = plan(row_of("imagenet-lt-paco"), Path("out"), flags={**FLAGS, "workers": 1})
    assert jobs[0].flags["workers"] == 1


def test_what_only_the_user_has_is_requested() -> None:
    with pytest.raises(
        ValueError,
        match=(r"cifar10-lt-livt needs weights: an encoder of ViT-B/16.*Pass --set weights=PATH"),
    ):
        planned("cifar10-lt-livt")
    jobs = planned("cifar10-lt-livt", settings={"pretrained": "mae.pth"}, seeds=[5])
    assert [(job.seed, job.keywords["weights"]) for job in jobs] == [(5, "mae.pth")]
    assert describe(published()["cifar10-lt-livt"], jobs[0], None)[0] == "reproduction"


def test_a_flag_of_the_data_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="unknown keyword of paco 'imbalance'"):
        planned("cifar100-lt-paco", settings={"imbalance": "10"})


DOMAIN_ROWS = [name for name, row in published().items() if row.test_domains]


@pytest.mark.parametrize("name", DOMAIN_ROWS)
def test_rows_of_domains_are_rehearsed_on_a_tiny_folder(name: str, tmp_path: Path) -> None:
    """Every test domain of the row, with its network at random, up to the first step."""
    row, images = published()[name], tmp_path / row_of(name).data
    rng = np.random.default_rng(0)
    for domain in row.test_domains:
        for label in ("a", "b"):
            (images / domain / label).mkdir(parents=True)
            for number in range(5):
                pixels = rng.integers(256, size=(6, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(images / domain / label / f"{number}.png")
    jobs = plan(row, tmp_path / "runs", settings={"weights": "random"}, flags={"root": images})
    assert len(jobs) == len(row.test_domains) * len(row.seeds)
    assert {job.flags["test_domain"] for job in jobs} == {*row.test_domains}
    job = jobs[0]
    request = DataRequest.from_flags(job.data, job.flags)
    data = open_dataset(request, size=job.keywords["size"])
    run = Run(tmp_path / "dry", dry="rehearse")
    method = import_function(job.recipe.target)(run, data, **job.keywords)
    assert method.deploy().dim == 2
    assert run.pretraining is None


ADAPTED_ROWS = [name for name, row in published().items() if row.protocol == "adapt"]


@pytest.mark.parametrize("name", ADAPTED_ROWS)
def test_rows_of_adaptation_are_rehearsed_on_a_tiny_folder(name: str, tmp_path: Path) -> None:
    """Source and target of the row, with its network at random, up to the first step."""
    row, rng = published()[name], np.random.default_rng(0)
    for domain in (row.request["train_domain"], row.request["test_domain"]):
        for label in ("a", "b"):
            (tmp_path / "images" / domain / label).mkdir(parents=True)
            for number in range(5):
                pixels = rng.integers(256, size=(6, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / domain / label / f"{number}.png")
    jobs = plan(
        *(row, tmp_path / "runs"),
        settings={"weights": "random", "size": 32},
        flags={"root": tmp_path / "images"},
    )
    assert [job.seed for job in jobs] == [*row.seeds]
    request = DataRequest.from_flags(jobs[0].data, jobs[0].flags)
    data = open_dataset(request, size=jobs[0].keywords["size"])
    assert data.unlabelled is not None
    assert (len(data.unlabelled), len(data.train)) == (10, 8)
    assert headline_of(scorer_for(data))["name"] == row.metric
    run = Run(tmp_path / "dry", dry="rehearse")
    method = import_function(jobs[0].recipe.target)(run, data, **jobs[0].keywords)
    assert method.deploy().dim == 2


# Networks of the same kinds; that those of the rows can be built is in recipes/data/flops.toml
SMALL = {
    r"timm:vit_\w+": "timm:vit_tiny_patch16_224",
    r"timm:deit_\w+": "timm:deit_tiny_distilled_patch16_224",
    r"timm:deit3_\w+": "timm:deit3_small_patch16_224",
    r"timm:resnet\d+.*": "timm:resnet18",
    r"timm:regnety_\d+": "timm:regnety_002",
}


def _settings(row: Published) -> dict[str, Any]:
    """The keywords of a row, with small networks and images, and no other run to start from."""
    known = read(row.recipe).parameters
    start = "timm" if row.keywords.get("features") == "frozen" else "random"
    needed = dict.fromkeys(row.needed_keywords)
    needed |= {"weights": None if row.recipe == "livt" else start}
    given = row.all_keywords({name: value for name, value in needed.items() if name in known})
    for name, value in given.items():
        if name.endswith("network"):
            matching = (small for large, small in SMALL.items() if re.fullmatch(large, value))
            given[name] = next(matching, value)
        elif name.endswith("size") and value is not None:
            given[name] = min(value, 64)
    return given


# Rows with the same keywords on other data are built alike
LONG_TAILED_ROWS = {
    json.dumps([row.recipe, _settings(row)], sort_keys=True): name
    for name, row in published().items()
    if parts_of(row)
}


@pytest.mark.parametrize("name", LONG_TAILED_ROWS.values())
def test_long_tailed_rows_are_rehearsed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage of a row up to its first step."""
    create = timm.create_model

    def shallow(model: str, **keywords: Any) -> Any:
        depth = {"depth": 1} if model.startswith(("vit_", "deit")) else {}
        return create(model, **{**keywords, **depth, "pretrained": False})

    monkeypatch.setattr(timm, "create_model", shallow)
    monkeypatch.setitem(LAYERS, "resnet50", (1, 1, 1, 1))
    row = published()[name]
    run = Run(tmp_path / "dry", dry="rehearse")
    method = import_function(read(row.recipe).target)(run, _digits(), **_settings(row))
    assert isinstance(method.deploy(), Classifier)


@cache
def _digits() -> Any:
    return open_dataset(DataRequest("digits-lt"), size=8)


def test_the_value_of_several_domains_is_their_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = published()["pacs-erm"]
    jobs = plan(row, tmp_path, seeds=[0, 1], flags={"root": tmp_path})
    assert [job.folder.relative_to(tmp_path).as_posix() for job in jobs[:3]] == [
        "art_painting/seed=0",
        "art_painting/seed=1",
        "cartoon/seed=0",
    ]
    accuracies = (0.8, 0.7, 0.6, 0.5, 0.9, 0.9, 0.9, 0.7)
    values = {job.folder: value for job, value in zip(jobs, accuracies, strict=True)}

    def read(folder: Path) -> Any:
        seed = int(folder.name.removeprefix("seed="))
        scores = {"scores": {"domains": values[folder]}, "ece": 0.1, "mce": 0.1}
        return {"seed": seed, "test": scores, "data": {"caveats": []}, "versions": {}}

    monkeypatch.setattr("longtail.records.row.read_row", read)
    result = evaluate(row, None, jobs)
    assert result["measured"]["seeds"] == pytest.approx({"0": 0.8, "1": 0.7})
    assert "2 seeds of 3." in result["remarks"]
    cartoon = result["columns"]["cartoon"]
    assert (cartoon["published"], cartoon["measured"]) == (0.761, pytest.approx(0.55))
    # A seed that lacks a domain does not count
    missing = evaluate(row, None, jobs, diverged=[jobs[0].folder])
    assert [*missing["measured"]["seeds"]] == ["1"]


def test_a_row_of_a_folder_needs_it() -> None:
    with pytest.raises(LongtailError, match=r"pacs-erm needs the images of pacs: pass .* --root"):
        plan(row_of("pacs-erm"), Path("out"))


def test_a_table_runs_its_rows_and_what_they_begin_with_once(
    longtail: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"network": "fast_cnn", "epochs": 1, "batch": 64}
    small = replace(
        published()["cifar10-lt-ldam-drw-sam"],
        data="digits-lt",
        imbalance=None,
        keywords=quick,
        seeds=(0,),
    )
    student = replace(
        published()["cifar10-lt-deit-lt-ldam"],
        data="digits-lt",
        imbalance=None,
        keywords={**quick, "network": "vit_mini"},
        begins_with={"teacher": "small"},
        columns={"few": 0.5, "cls/top1": 0.5, "ece": 0.1},
        group_sizes=(1, 1, 8),
        confidence="sigmoid",
        seeds=(0,),
    )
    rows = {"small": replace(small, name="small"), "student": replace(student, name="student")}
    monkeypatch.setattr(reproducing, "published", lambda: rows)
    with pytest.raises(LongtailError, match="student needs teacher: a run of small"):
        plan(rows["student"], tmp_path)
    monkeypatch.setattr(reproducing, "tables", lambda: {"mine-2": ("student", "small")})
    table = ("reproduce", "--table", "mine-2", "--out", tmp_path)
    before_run = longtail(*table).out
    assert before_run.count("not finished") == 2
    assert f"next: longtail reproduce --table mine-2 --run --out {tmp_path}" in before_run
    words = (*table, "--run", "--threads", 1, "--device", "cpu")
    printed = longtail(*words)
    assert printed.code == 0, printed.err
    assert f"next: longtail report {tmp_path / 'student' / 'seed=0'}" in printed.out
    result = reproduction("student", out=tmp_path / "student")
    assert result is not None
    line = next(line for line in printed.out.splitlines() if line.lstrip().startswith("student  "))
    assert f"84.8 / {100 * result['measured']['mean']:.1f}" in line
    assert f"reproduction: {result['verdict']}" in line
    assert "83.8 to 85.8" in line, "the band"
    assert f"50.0 / {100 * result['columns']['few']['measured']:.1f}" in line
    small_mean = read_row(tmp_path / "small" / "seed=0")["test"]
    assert small_mean is not None
    line = next(line for line in printed.out.splitlines() if line.lstrip().startswith("small  "))
    assert f"81.9 / {100 * small_mean['top1']:.1f}" in line
    flags: dict[str, Any] = {"device": "cpu", "threads": 1}
    teacher = tmp_path / "small" / "seed=0"
    assert result["keywords"]["teacher"] == str(teacher)
    assert result["kind"] == "reproduction"
    assert read_row(teacher)["recipe"] == "ldam"
    before = (teacher / "row.json").stat().st_mtime_ns
    assert longtail(*words).code == 0, "all are finished"
    repeated = reproduce("student", out=tmp_path / "student", **flags)
    assert {**repeated, "format": result["format"]} == result
    assert (teacher / "row.json").stat().st_mtime_ns == before
    assert reproduction("student", out=tmp_path / "student") is not None

    # Of three seeds, one is finished, and another one without its result
    rows["small"] = replace(rows["small"], seeds=(0, 1, 2))
    assert "1 of 3 seeds" in longtail(*table).out
    (tmp_path / "small" / "reproduce.json").unlink()
    partly = longtail(*table).out
    assert "not finished, finished runs: 1" in partly
    assert "--table mine-2 --run" in partly

    # The columns, one image after the other
    predictions, _ = read_predictions(tmp_path / "student" / "seed=0" / "predictions" / "test.npz")
    right = {
        head: logits.argmax(1) == predictions.target for head, logits in predictions.logits.items()
    }
    rare = [right["logits"][predictions.target == label].mean() for label in range(2, 10)]
    assert result["columns"]["few"]["measured"] == pytest.approx(sum(rare) / 8)
    assert result["columns"]["cls/top1"]["measured"] == pytest.approx(right["cls"].mean())
    assert result["columns"]["ece"]["published"] == 0.1
    summary = read_row(tmp_path / "student" / "seed=0")["test"]
    assert summary is not None
    sigmoid = summary["calibration"]["sigmoid"]["ece"]
    assert sigmoid != summary["ece"], "the confidence is that of the paper"
    assert result["columns"]["ece"]["measured"] == pytest.approx(sigmoid)


def test_a_table_names_its_rows_and_skips_what_it_cannot_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(reproducing, "reproduce", lambda name, **options: called.append(name))
    progress = RecordedProgress()
    reproduce_table("livt-4", progress=progress)
    assert called == ["places-lt-deit3"]
    assert len(progress.warnings) == 3
    assert "places-lt-livt is skipped, because it needs weights" in progress.warnings[0]
    reproduce_table("livt-4", settings={"weights": "mae.pth"}, progress=progress)
    assert called[1:] == ["places-lt-livt", "places-lt-livt-384", "places-lt-mae", called[0]]
    with pytest.raises(LongtailError, match="unknown published table 'livt-44': did you mean"):
        rows_of("livt-44")


class RecordedProgress(Printed):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)
