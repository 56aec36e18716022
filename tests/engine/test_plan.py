from __future__ import annotations

import pytest

from longtail.engine.plan import EpochPlan


def test_a_slower_machine_has_fewer_epochs_and_a_faster_one_gets_them_back() -> None:
    plan = EpochPlan(seconds=100.0)
    elapsed = 0.0
    for finished, seconds in enumerate([10.0, 10.0, 20.0, 20.0, 1.0, 1.0, 1.0, 1.0], start=1):
        elapsed += seconds
        plan.update(finished, planned=10, elapsed=elapsed)
    assert plan.changes[3] == 7, "two epochs of 10 and one of 20 seconds: 15 on average"
    assert plan.total(2, planned=10) == 10
    assert plan.total(8, planned=10) == 10, "the requested epochs are the most"


def test_training_stops_when_its_time_is_over() -> None:
    plan = EpochPlan(seconds=25.0)
    for finished, elapsed in ((1, 10.0), (2, 30.0)):
        plan.update(finished, planned=10, elapsed=elapsed)
    assert plan.changes == {1: 2}
    assert plan.total(2, planned=10) == 2


def test_the_last_epoch_changes_nothing() -> None:
    plan = EpochPlan(seconds=1.0)
    plan.update(3, planned=3, elapsed=9.0)
    assert plan.changes == {}


def test_a_plan_without_a_time_follows_its_changes() -> None:
    plan = EpochPlan.parse("3:37,8:35")
    plan.update(1, planned=40, elapsed=1e9)
    assert str(plan) == "3:37,8:35"
    other = EpochPlan()
    other.load_state_dict(plan.state_dict())
    assert other.changes == plan.changes


@pytest.mark.parametrize("text", ["3", "3:", "a:4", "8:35,3:37", "3:2", "0:5", "3:-1"])
def test_a_plan_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 3:37,8:35 .*, got"):
        EpochPlan.parse(text)
