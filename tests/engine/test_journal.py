"""Journals: cut back to a checkpoint, readable after a crash, and on TensorBoard."""

from pathlib import Path

import pytest
import torch

from longtail.core import Clock, NonFinite, Outcome
from longtail.engine.journal import Journal, Meter
from longtail.records.files import read_lines


def outcome(value: float) -> Outcome:
    return Outcome(
        {"a": torch.tensor(value), "b": torch.tensor(1.0)}, notes={"n": torch.tensor(2 * value)}
    )


def test_means_are_over_the_epoch_and_survive_a_checkpoint() -> None:
    meter = Meter()
    for value in (1.0, 2.0, 6.0):
        meter.add(outcome(value), Clock(0, 3, 0, 1))
        repeated = Meter()
        repeated.load_state_dict(meter.state_dict())
        meter = repeated
    assert meter.means() == {"terms/a": 3.0, "terms/b": 1.0, "notes/n": 6.0}


def test_a_term_of_some_steps_is_averaged_over_these() -> None:
    meter = Meter()
    for step in range(10):
        terms = {"a": torch.tensor(1.0)} | ({"rare": torch.tensor(5.0)} if step % 5 == 0 else {})
        meter.add(Outcome(terms), Clock(step, 10, 0, 1))
    assert meter.means() == {"terms/a": 1.0, "terms/rare": 5.0}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_term_that_is_not_finite_stops(value: float) -> None:
    with pytest.raises(NonFinite, match=r"step 7 of 20 \(epoch 2 of 5\): a (nan|inf), b 1"):
        Meter().add(outcome(value), Clock(7, 20, 1, 5))


def test_a_journal_is_cut_where_the_checkpoint_was_made(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    journal.write({"step": 1})
    kept = journal.length
    journal.write({"step": 2})
    journal.close()
    journal = Journal(tmp_path / "j.jsonl", length=kept)
    journal.write({"step": 3})
    journal.close()
    assert read_lines(tmp_path / "j.jsonl") == [{"step": 1}, {"step": 3}]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_numbers_go_to_tensorboard_on_request(tmp_path: Path) -> None:
    event_files = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    journal = Journal(tmp_path / "j.jsonl", tensorboard=tmp_path / "board")
    journal.write({"kind": "epoch", "step": 4, "terms/a": 0.5})
    journal.close()
    events = event_files.EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("terms/a")] == [(4, 0.5)]


def test_a_journal_that_lost_its_end_goes_on_without_holes(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"step": 1}\n{"st')
    journal = Journal(tmp_path / "j.jsonl", length=500)  # as the checkpoint remembers it
    journal.write({"step": 3})
    journal.write({"step": 4})
    journal.close()
    assert read_lines(tmp_path / "j.jsonl") == [{"step": 1}, {"step": 3}, {"step": 4}]
