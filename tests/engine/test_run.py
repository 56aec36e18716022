"""Runs: killed at any step and resumed, equal to the bit; stopped politely; refusing what is not
theirs.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import ToyBatches, ToyMethod, digest, noisy

import longtail
from longtail.core import Clock, Labelled, NonFinite, Outcome, Predict, Stage, average, best, last
from longtail.engine.averaging import EMA, Uniform
from longtail.engine.journal import Journal
from longtail.engine.optim import adamw, clipped, sgd
from longtail.engine.plan import EpochPlan
from longtail.engine.run import Run
from longtail.engine.sam import sam
from longtail.engine.stopping import Stopped
from longtail.errors import LongtailError
from longtail.records.files import read_lines
from longtail.schedules import Cosine


class Killed(BaseException):
    """What a test raises where a real run would die."""


def die() -> None:
    raise Killed


class Deadly(ToyBatches):
    """Dies just before it would hand over a chosen batch, wherever the epoch was started."""

    def __init__(self, die_at: int, action: Callable[[], None] = die) -> None:
        super().__init__()
        self.die_at, self.action = die_at, action

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Labelled]:
        for i, batch in enumerate(super().epoch(index, start=start), start):
            if self.die_at == index * len(self) + i:
                self.action()
            yield batch


class Recall:
    """An evaluator on the toy data that also draws random numbers, to see that nobody minds."""

    def __init__(self) -> None:
        self.data = ToyBatches(30, 30, seed=9)

    def __call__(self, predict: Predict) -> dict[str, float]:
        torch.rand(3), np.random.rand()  # noqa: NPY002
        batch = next(self.data.epoch(0))
        return {
            "top1": (
                (predict(batch["image"])["logits"].argmax(1) == batch["target"])
                .float()
                .mean()
                .item()
            )
        }


def recipe(run: Run, first: ToyBatches, second: ToyBatches) -> ToyMethod:
    """Two stages: the second starts from the first one's weights and a fresh head."""
    method = ToyMethod()
    stage = Stage(
        name="pretrain",
        method=method,
        data=first,
        epochs=2,
        optimizer=sam(sgd(lr=0.1), rho=0.1),
        schedule=Cosine(0.1),
        mix=noisy,
        averages={"ema": EMA(0.9)},
        keep=average("ema"),
    )
    run.fit(stage)
    tuned = ToyMethod()
    tuned.trunk.load_state_dict(method.trunk.state_dict())
    run.fit(
        Stage(
            name="finetune",
            method=tuned,
            data=second,
            epochs=3,
            optimizer=clipped(adamw(lr=0.01), norm=1.0),
            mix=noisy,
            accumulate=2,
            averages={"ema": EMA(0.9), "swa": Uniform(start=0.3)},
            evals={"val": Recall()},
            keep=best("ema/val/top1"),
        )
    )
    return tuned


def journal_without_times(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for stage in ("pretrain", "finetune")
        for line in read_lines(folder / stage / "journal.jsonl")
    ]
    return [
        {key: value for key, value in line.items() if key not in Journal.TIMES} for line in lines
    ]


def everything(folder: Path, method: ToyMethod) -> Any:
    saved = torch.load(folder / "finetune" / "last.pt", weights_only=True)
    averages = {
        name: {k: t.numpy().tobytes() for k, t in state["mean"].items()}
        for name, state in saved["averages"].items()
    }
    return digest(method), averages, journal_without_times(folder)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    return everything(folder, recipe(Run(folder), ToyBatches(), ToyBatches()))


@pytest.mark.parametrize(
    "save_minutes", [0.0, 10.0], ids=["saved at every step", "saved at epochs"]
)
@pytest.mark.parametrize("stage", ["pretrain", "finetune"])
@pytest.mark.parametrize("at", [0, 1, 3, 4, 5])
def test_killed_at_any_step_and_resumed_equals_the_uninterrupted_run(
    tmp_path: Path, reference: Any, stage: str, at: int, save_minutes: float
) -> None:
    dying, fine = Deadly(at), ToyBatches()
    with pytest.raises(Killed):
        recipe(
            Run(tmp_path, save_minutes=save_minutes),
            *((dying, fine) if stage == "pretrain" else (fine, dying)),
        )
    assert everything(tmp_path, recipe(Run(tmp_path), ToyBatches(), ToyBatches())) == reference


class Slower(EpochPlan):
    """Plans as on a machine where epochs take 1, 1, 4, 4, ... seconds."""

    def update(self, finished: int, *, planned: int, elapsed: float) -> None:
        slow = sum(1.0 if epoch < 2 else 4.0 for epoch in range(finished))
        super().update(finished, planned=planned, elapsed=slow)


def planned(run: Run, data: ToyBatches) -> ToyMethod:
    """One stage of eight epochs, with a schedule that follows the plan."""
    method = ToyMethod()
    run.fit(
        Stage(
            name="s",
            method=method,
            data=data,
            epochs=8,
            optimizer=sgd(lr=0.1),
            schedule=Cosine(0.1),
            mix=noisy,
        )
    )
    return method


def test_replanned_epochs_resume_and_repeat_to_the_bit(tmp_path: Path) -> None:
    run = Run(tmp_path / "slow", plan=Slower(seconds=16.0))
    reference = digest(planned(run, ToyBatches()))
    (record,) = run.history
    assert record["plan"] == "3:7,4:6,5:5", "1 + 1 + 4 + 4 + 4 = 14 seconds, one more takes 18"
    assert record["epochs"] == 5
    epochs = [line for line in read_lines(tmp_path / "slow/s/journal.jsonl") if "epochs" in line]
    assert [f"{line['epoch']}:{line['epochs']}" for line in epochs] == record["plan"].split(",")

    with pytest.raises(Killed):  # in the fifth epoch
        planned(Run(tmp_path / "killed", plan=Slower(seconds=16.0)), Deadly(4 * 3 + 1))
    resumed = planned(Run(tmp_path / "killed", plan=Slower(seconds=16.0)), ToyBatches())
    assert digest(resumed) == reference

    repeated = Run(tmp_path / "again", plan=EpochPlan.parse(record["plan"]))
    assert digest(planned(repeated, ToyBatches())) == reference
    complete = Run(tmp_path / "whole")
    assert digest(planned(complete, ToyBatches())) != reference
    assert "plan" not in complete.history[0]


def test_epochs_are_replanned_in_recipes_of_one_stage_only(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="of one stage only, and this one has pretrain, finet"):
        recipe(Run(tmp_path, plan=EpochPlan(seconds=1.0)), ToyBatches(), ToyBatches())


@pytest.mark.parametrize("minutes", [-1.0, math.nan])
def test_minutes_between_checkpoints_are_a_number(tmp_path: Path, minutes: float) -> None:
    with pytest.raises(LongtailError, match="expected --save-every of 0 minutes or more"):
        Run(tmp_path, save_minutes=minutes)


def test_a_finished_run_loads_without_training(tmp_path: Path) -> None:
    first = recipe(Run(tmp_path), ToyBatches(), ToyBatches())
    before = (tmp_path / "finetune" / "last.pt").stat().st_mtime_ns
    run = Run(tmp_path)
    repeated = recipe(run, ToyBatches(), ToyBatches())
    assert digest(first) == digest(repeated)
    assert (tmp_path / "finetune" / "last.pt").stat().st_mtime_ns == before
    assert [record["name"] for record in run.history] == ["pretrain", "finetune"]
    assert run.history[1]["best"]["metric"] == "ema/val/top1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_continue(
    tmp_path: Path, reference: Any, number: signal.Signals
) -> None:
    polite, before = Deadly(4, lambda: os.kill(os.getpid(), number)), signal.getsignal(number)
    with pytest.raises(Stopped, match="Continue with: longtail train toy"):
        recipe(Run(tmp_path, command="longtail train toy"), ToyBatches(), polite)
    assert signal.getsignal(number) is before, (
        "what was there before, which is nothing (SIG_IGN) for a job in the background"
    )
    assert everything(tmp_path, recipe(Run(tmp_path), ToyBatches(), ToyBatches())) == reference


class Polite(Recall):
    """Requests a stop while the last epoch is evaluated."""

    def __call__(self, predict: Predict) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        return super().__call__(predict)


def test_a_signal_in_the_last_evaluation_of_a_stage_is_heard(tmp_path: Path) -> None:
    def fit() -> None:
        Run(tmp_path, command="again").fit(
            Stage(
                name="s",
                method=ToyMethod(),
                data=ToyBatches(),
                epochs=1,
                optimizer=sgd(lr=0.1),
                evals={"val": Polite()},
            )
        )

    with pytest.raises(
        Stopped, match=r"stopped after stage 's', which is complete\. Continue with: again"
    ):
        fit()
    fit()  # loads: nothing is evaluated again


class Explodes(ToyMethod):
    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        outcome = super().forward(batch, clock)
        return Outcome(
            {**outcome.terms, "extra": outcome.loss * (float("nan") if clock.step == 4 else 0.0)},
            carry=outcome.carry,
        )


def test_a_loss_that_is_not_finite_stops_with_the_step_and_keeps_the_last_good_checkpoint(
    tmp_path: Path,
) -> None:
    stage = Stage(name="s", method=Explodes(), data=ToyBatches(), epochs=3, optimizer=sgd(lr=0.1))
    with pytest.raises(
        NonFinite, match=r"step 4 of 9 \(epoch 2 of 3\): class .*extra nan.*learning rate"
    ):
        Run(tmp_path).fit(stage)
    saved = torch.load(tmp_path / "s" / "last.pt", weights_only=True)
    assert saved["step"] == 3
    assert all(tensor.isfinite().all() for tensor in saved["method"].values())


class Steep(ToyMethod):
    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        outcome = super().forward(batch, clock)
        zero = next(self.parameters()).sum() * 0
        return Outcome(
            {**outcome.terms, "extra": zero.sqrt() if clock.step == 5 else zero},
            carry=outcome.carry,
        )


def test_nonfinite_weights_after_a_finite_loss_do_not_replace_good_ones(tmp_path: Path) -> None:
    stage = Stage(name="s", method=Steep(), data=ToyBatches(), epochs=3, optimizer=sgd(lr=0.1))
    with pytest.raises(
        NonFinite,
        match=(
            r"the weights stopped being finite at step 5 of 9 \(epoch 2 of 3\): 1 parameter"
            r" tensor\(s\), such as"
            r" .*weight"
        ),
    ):
        Run(tmp_path).fit(stage)
    saved = torch.load(tmp_path / "s" / "last.pt", weights_only=True)
    assert saved["step"] == 3
    assert all(tensor.isfinite().all() for tensor in saved["method"].values())


def test_a_full_disk_leaves_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(name="s", method=ToyMethod(), data=ToyBatches(), epochs=3, optimizer=sgd(lr=0.1))
    calls, real = [], torch.save

    def full(state: Any, file: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(state, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"No space left.*intact.*free some space"):
        Run(tmp_path).fit(stage)
    assert torch.load(tmp_path / "s" / "last.pt", weights_only=True)["step"] == 3
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["journal.jsonl", "last.pt"]


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    stage = Stage(name="s", method=ToyMethod(), data=ToyBatches(), epochs=1, optimizer=sgd(lr=0.1))
    Run(tmp_path).fit(stage)
    path = tmp_path / "s" / "last.pt"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"checkpoint .*last\.pt cannot be read.*delete"):
        Run(tmp_path).fit(stage)


def test_a_checkpoint_of_an_earlier_version_is_resumed(tmp_path: Path, reference: Any) -> None:
    with pytest.raises(Killed):
        recipe(Run(tmp_path, save_minutes=0.0), ToyBatches(), Deadly(5))
    path = tmp_path / "finetune" / "last.pt"
    saved = torch.load(path, weights_only=True)
    (saved["meter"],) = saved.pop("meters")
    torch.save(saved, path)
    assert everything(tmp_path, recipe(Run(tmp_path), ToyBatches(), ToyBatches())) == reference


def test_a_finished_stage_without_its_weights_is_refused(tmp_path: Path) -> None:
    stage = Stage(name="s", method=ToyMethod(), data=ToyBatches(), epochs=1, optimizer=sgd(lr=0.1))
    Run(tmp_path).fit(stage)
    (tmp_path / "s" / "last.pt").unlink()
    with pytest.raises(
        ValueError,
        match=(r"stage 's' is finished, but .*last\.pt is missing: restore it, or" r" delete"),
    ):
        Run(tmp_path).fit(stage)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    Run(tmp_path).fit(
        Stage(name="s", method=ToyMethod(), data=ToyBatches(), epochs=1, optimizer=sgd(lr=0.1))
    )
    other = Stage(
        name="s", method=ToyMethod(norm=False), data=ToyBatches(), epochs=1, optimizer=sgd(lr=0.1)
    )
    with pytest.raises(
        ValueError,
        match=r"does not fit this network: trunk\.1\.weight is not in this network.*--out",
    ):
        Run(tmp_path).fit(other)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("touch " + str(tmp_path / "owned"),)

    (tmp_path / "s").mkdir()
    torch.save({"format": 1, "method": Evil()}, tmp_path / "s" / "last.pt")
    with pytest.raises(ValueError, match="cannot be read"):
        Run(tmp_path).fit(
            Stage(name="s", method=ToyMethod(), data=ToyBatches(), epochs=1, optimizer=sgd(lr=0.1))
        )
    assert not (tmp_path / "owned").exists()


def test_a_dry_run_estimates_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "new", dry="estimate")
    recipe(run, ToyBatches(), ToyBatches())
    output = capsys.readouterr().err
    assert "ms a step" in output
    assert "effective batch 32 (16 rows x 2 accumulated)" in output
    assert [record["name"] for record in run.history] == ["pretrain", "finetune"]
    assert not (tmp_path / "new").exists()


def test_a_rehearsal_learns_nothing_writes_nothing_and_refuses_what_a_later_stage_would(
    tmp_path: Path,
) -> None:
    run, method = Run(tmp_path / "new", dry="rehearse"), ToyMethod()
    before = digest(method)
    first = run.fit(
        Stage(name="pretrain", method=method, data=ToyBatches(), epochs=9, optimizer=sgd(lr=0.1))
    )
    assert digest(first) == before
    with pytest.raises(ValueError, match=r"names 'neck', .*: known are head, trunk"):
        run.fit(
            Stage(
                name="finetune",
                method=first,
                data=ToyBatches(),
                epochs=1,
                optimizer=sgd(lr=0.1, scales={"neck": 0.1}),
            )
        )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_epoch_is_kept_and_named(tmp_path: Path, higher: bool) -> None:
    run = Run(tmp_path)
    stage = Stage(
        name="s",
        method=ToyMethod(),
        data=ToyBatches(),
        epochs=4,
        optimizer=sgd(lr=0.3),
        evals={"val": Recall()},
        keep=best("val/top1", higher_is_better=higher),
    )
    method = run.fit(stage)
    lines = read_lines(tmp_path / "s" / "journal.jsonl")
    top = (max if higher else min)(line["val/top1"] for line in lines)
    record = run.history[0]["best"]
    assert record == {
        "metric": "val/top1",
        "epoch": next(line["epoch"] for line in lines if line["val/top1"] == top),
        "value": top,
    }
    batch = next(Recall().data.epoch(0))
    assert (
        method.eval().predict(batch["image"]).argmax(1) == batch["target"]
    ).float().mean().item() == pytest.approx(top)


def test_the_best_of_an_average_waits_for_it_and_the_last_line_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, averages = Run(tmp_path), {"swa": Uniform(start=0.5)}
    toy: dict[str, Any] = {
        "method": ToyMethod(),
        "data": ToyBatches(),
        "epochs": 4,
        "optimizer": sgd(lr=0.3),
        "evals": {"val": Recall()},
    }
    run.fit(Stage(name="s", averages=averages, keep=best("swa/val/top1"), **toy))
    lines = read_lines(tmp_path / "s" / "journal.jsonl")
    values = [line["swa/val/top1"] for line in lines if "swa/val/top1" in line]
    assert 0 < len(values) < 4
    assert run.history[0]["best"]["value"] == max(values)
    assert values[-1] != lines[-1]["val/top1"], "or the line could show either"
    assert f"val/top1 {values[-1]:.3f}" in capsys.readouterr().err.splitlines()[-1]


class Leaning(ToyMethod):
    """Answers depend on what `after_step` moves and on statistics of a norm without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.nn.BatchNorm1d(3, affine=False)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        self.plain(batch["image"][:, :3])
        return super().forward(batch, clock)

    def predict(self, image: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.plain(super().predict(image)) + self.slow.sum(1)
        return logits


@pytest.mark.parametrize("keep", ["val/score", "ema/val/score"])
def test_the_kept_method_is_the_one_that_was_evaluated(tmp_path: Path, keep: str) -> None:
    image, evaluated = torch.rand(5, 6), []

    def score(predict: Predict) -> dict[str, float]:  # the second epoch is the best
        evaluated.append(predict(image)["logits"])
        return {"score": [0.0, 0.0, 1.0, 1.0, 0.0, 0.0][len(evaluated) - 1]}

    averages = {"ema": EMA(0.5)}
    stage = Stage(
        name="s",
        method=Leaning(),
        data=ToyBatches(),
        epochs=3,
        optimizer=sgd(lr=0.3),
        averages=averages,
        evals={"val": score},
        keep=best(keep),
    )
    kept = Run(tmp_path).fit(stage).predict(image)
    torch.testing.assert_close(kept, evaluated[3 if keep.startswith("ema") else 2], rtol=0, atol=0)


def test_what_is_not_a_number_is_never_the_best(tmp_path: Path) -> None:
    values = iter([math.nan, 0.5, math.nan])
    toy: dict[str, Any] = {
        "method": ToyMethod(),
        "data": ToyBatches(),
        "epochs": 3,
        "optimizer": sgd(lr=0.1),
    }
    run = Run(tmp_path)
    run.fit(
        Stage(
            name="s",
            evals={"val": lambda predict: {"auc": next(values)}},
            keep=best("val/auc"),
            **toy,
        )
    )
    assert run.history[0]["best"] == {"metric": "val/auc", "epoch": 2, "value": 0.5}


def test_stages_given_the_same_averages_have_separate_ones(tmp_path: Path) -> None:
    run, averages = Run(tmp_path), {"ema": EMA(0.9)}
    toy: dict[str, Any] = {
        "data": ToyBatches(),
        "epochs": 2,
        "optimizer": sgd(lr=0.1),
        "averages": averages,
        "keep": average("ema"),
    }
    first = run.fit(Stage(name="train", method=ToyMethod(), **toy))
    second = run.fit(Stage(name="retrain", method=ToyMethod(), **toy))
    assert not torch.equal(first.head.weight, second.head.weight)  # type: ignore[union-attr, arg-type]
    assert not averages["ema"].weights()


def test_two_stages_of_one_name_are_refused(tmp_path: Path) -> None:
    toy: dict[str, Any] = {"data": ToyBatches(), "epochs": 1, "optimizer": sgd(lr=0.1)}
    for dry in (None, "rehearse"):
        run = Run(tmp_path, dry=dry)
        run.fit(Stage(name="train", method=ToyMethod(), **toy))
        with pytest.raises(ValueError, match=r"two stages are called 'train'"):
            run.fit(Stage(name="train", method=ToyMethod(), **toy))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"keep": best("val/nothing")},
            "keeps the best 'val/nothing', but its metrics are: val/top1",
        ),
        ({"keep": average("ema")}, "keeps the average 'ema', but its averages are"),
        (
            {"keep": average("swa"), "averages": {"swa": Uniform(start=0.9)}},
            "keeps last epoch, swa, but the average 'swa' was never updated",
        ),
        ({"keep": best("val/top1"), "evals": {}}, "'val/top1' was never measured"),
        ({"epochs": 0}, "must be at least 1"),
        ({"accumulate": 0}, "must be at least 1"),
    ],
)
def test_an_impossible_stage_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    keywords: dict[str, Any] = {
        "epochs": 1,
        "keep": last,
        "evals": {"val": Recall()},
        "optimizer": sgd(lr=0.1),
    } | changes
    with pytest.raises(ValueError, match=message):
        Run(tmp_path).fit(Stage(name="s", method=ToyMethod(), data=ToyBatches(), **keywords))


def test_the_journal_has_terms_notes_rate_and_evaluations(tmp_path: Path) -> None:
    stage = Stage(
        name="s",
        method=ToyMethod(),
        data=ToyBatches(),
        epochs=2,
        optimizer=sgd(lr=0.1),
        evals={"val": Recall()},
        evaluate=lambda clock: clock.epoch == 1,
    )
    Run(tmp_path).fit(stage)
    one, two = read_lines(tmp_path / "s" / "journal.jsonl")
    assert {
        "kind",
        "epoch",
        "step",
        "rate",
        "terms/class",
        "terms/pull",
        "notes/size",
        "seconds",
        "images_per_second",
    } == set(one)
    assert set(two) - set(one) == {"val/top1"}
    assert json.loads((tmp_path / "s" / "done").read_text())["keep"] == "last epoch"


def test_a_recipe_writes_once_and_not_in_a_dry_run(tmp_path: Path) -> None:
    def write(text: str) -> Callable[[Path], None]:
        def writer(path: Path) -> None:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

        return writer

    for dry in ("estimate", "rehearse"):
        Run(tmp_path, dry=dry).write(tmp_path / "extra" / "note.txt", write("dry"))
    assert not (tmp_path / "extra").exists()
    run = Run(tmp_path)
    run.write(tmp_path / "extra" / "note.txt", write("first"))
    run.write(tmp_path / "extra" / "note.txt", write("second"))
    assert (tmp_path / "extra" / "note.txt").read_text() == "first"
    run.write(tmp_path / "extra" / "note.txt", write("third"), replace=True)
    assert (tmp_path / "extra" / "note.txt").read_text() == "third"


def test_other_processes_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.processes.rank", lambda: 1)
    Run(tmp_path).write(tmp_path / "note.txt", lambda path: path.touch())
    assert not any(tmp_path.iterdir())


def test_keywords_without_effect_are_refused_before_a_run_and_kept_off_its_row(
    tmp_path: Path,
) -> None:
    before, after = Run(tmp_path, dry="rehearse"), Run(tmp_path)
    for run in (before, after):
        run.changed = {"epochs": 3, "teacher_epochs": 5}
    before.ignore(["epochs_of_another"], given="--teacher")
    with pytest.raises(ValueError, match="--teacher-epochs 5 has no effect with --teacher: remove"):
        before.ignore(["teacher_epochs"], given="--teacher")
    after.ignore(["teacher_epochs"], given="--teacher")  # a run that began under older defaults
    assert after.unused == {"teacher_epochs"}


def test_a_dry_run_leaves_a_computation_out(tmp_path: Path) -> None:
    runs = [Run(tmp_path), Run(tmp_path, dry="estimate"), Run(tmp_path, dry="rehearse")]
    results = [run.compute(lambda: "long", dry=lambda: "short") for run in runs]
    assert results == ["long", "short", "short"]


def test_no_recipe_asks_whether_a_run_is_dry() -> None:
    recipes = Path(longtail.__file__).parent / "recipes"
    assert not [path.name for path in recipes.glob("*.py") if ".dry" in path.read_text()]


def test_a_finished_stage_and_a_dry_run_will_not_train(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.will_train("first")
    assert not Run(tmp_path, dry="estimate").will_train("first")
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "done").touch()
    assert not run.will_train("first")
