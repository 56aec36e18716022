"""Reproducing: what is run, what it is called, and the remarks that belong to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtail.experiments.jobs import Job
from longtail.experiments.reproduce import describe, plan, row_of, smoke_of
from longtail.recipes.published import published

FLAGS = {"device": "cpu", "threads": 1, "root": Path("images")}


def planned(name: str, *, smoke: bool = False, **options: Any) -> list[Job]:
    small = smoke_of(name) if smoke else None
    return plan(row_of(name), Path("out"), small, flags=FLAGS, **options)


def test_a_row_runs_with_its_own_settings_and_seeds() -> None:
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
        found, remarks = describe(row, job, None)
        assert found == kind
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


def test_what_only_the_user_has_is_asked_for() -> None:
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
