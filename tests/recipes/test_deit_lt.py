"""DeiT-LT from teacher to student, its baselines, and what it refuses, on digits."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captured import stages
from safetensors.torch import load_file, save_file

from longtail.core import Clock
from longtail.data.augmentations import RandAugment
from longtail.data.loader import TrainLoader
from longtail.data.open import open_data
from longtail.data.samplers import Instance, RepeatedAugmentation
from longtail.data.teacher_labels import AddTeacherLabels, SoftLabels, SplitViews
from longtail.data.views import CropFlip, TwoViews
from longtail.losses import LogitAdjusted, class_balanced_weights
from longtail.nn import Linear, build, files
from longtail.nn.encoders import read_weights
from longtail.nn.networks import Classifier
from longtail.recipes.teachers import minutes_of, read_teacher, training_data
from longtail.records.predictions import read_predictions
from longtail.records.row import read_row
from longtail.runs import evaluate, load, train
from longtail.runs.restore import restore_method

QUICK: dict[str, Any] = {"epochs": 2, "batch": 64, "threads": 1, "device": "cpu"}
STUDENT: dict[str, Any] = {**QUICK, "patch": 4}


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ldam"
    train("ldam", "digits-lt", folder, **{**QUICK, "batch": 128})
    return folder


def labels() -> list[Path]:
    return sorted((Path(os.environ["XDG_CACHE_HOME"]) / "longtail" / "labels").glob("*.bin"))


def weights(folder: Path, stage: str = "student") -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / stage / "last.pt")["method"]
    return state


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


def test_teacher_and_student_in_one_command(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = train("deit_lt", "digits-lt", tmp_path / "whole", teacher_epochs=2, **STUDENT)
    assert result.row is not None
    assert result.row["epochs"] == {"teacher": 2, "student": 2}
    assert result.row["pretraining"] is None
    test = result.row["test"]
    assert test is not None
    assert list(test["heads"]) == ["cls", "dist"]
    saved, _ = read_predictions(tmp_path / "whole" / "predictions" / "test.npz")
    assert np.allclose(
        saved.logits["logits"], (saved.logits["cls"] + saved.logits["dist"]) / 2, atol=1e-5
    )
    assert test["heads"]["dist"]["top1"] == (saved.logits["dist"].argmax(1) == saved.target).mean()
    assert set(test["heads"]["cls"]["groups"]) == {"many", "medium", "few"}
    left = {path.name for path in (tmp_path / "whole" / "analysis").iterdir()}
    assert left >= {
        "rollout.npz",
        "attention_distance.npz",
        "rank.npz",
        "entropy.npz",
        "training.npz",
    }
    with np.load(tmp_path / "whole" / "analysis" / "training.npz") as arrays:
        assert arrays["runs"].tolist() == ["student"], "two equal runs have equal files"
    page = (tmp_path / "whole" / "report.html").read_text()
    assert all(
        words in page
        for words in (
            "attention rollout",
            "How far each head attends",
            "1 - cosine",
            "How unsure the teacher is",
        )
    )
    line, _ = [
        json.loads(text)
        for text in (tmp_path / "whole" / "student" / "journal.jsonl").read_text().splitlines()
    ]
    assert {"terms/cls", "terms/dist", "notes/distance", "val/cls/few", "val/dist/few"} <= set(line)

    # The teacher is the one that its recipe trains.
    assert equal(
        files.read(tmp_path / "whole" / "teacher" / "model").network.state_dict(),
        load(teacher).network.state_dict(),
    )
    assert len(labels()) == 1

    # Reused, and never run again, it makes the same student to the bit.
    def asleep(self: Any, batch: Any, clock: Clock) -> Any:
        raise AssertionError("the teacher was run again")

    with monkeypatch.context() as patched:
        patched.setattr(AddTeacherLabels, "__call__", asleep)
        train("deit_lt", "digits-lt", tmp_path / "reused", teacher=str(teacher), **STUDENT)
        train(
            "deit_lt",
            "digits-lt",
            tmp_path / "again",
            teacher=str(tmp_path / "whole" / "teacher"),
            **STUDENT,
        )
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "reused"))
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "again"))
    assert len(labels()) == 1

    summary = evaluate(tmp_path / "whole", device="cpu", threads=1)["test"]
    assert summary is not None
    assert summary["heads"] == test["heads"]
    method, _ = restore_method(tmp_path / "whole")
    assert equal(method.state_dict(), weights(tmp_path / "whole"))


def test_killed_and_resumed_within_an_epoch_it_is_the_same(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {**STUDENT, "teacher": str(teacher), "save_every": 0.0}
    complete = TrainLoader.epoch

    def deadly(self: Any, index: int, *, start: int = 0) -> Iterator[Any]:
        for number, batch in enumerate(complete(self, index, start=start), start):
            if (index, number) == (1, 2):
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(TrainLoader, "epoch", deadly)
    with pytest.raises(KeyboardInterrupt):
        train("deit_lt", "digits-lt", tmp_path / "parts", **settings)
    monkeypatch.setattr(TrainLoader, "epoch", complete)
    train("deit_lt", "digits-lt", tmp_path / "parts", **settings)
    labels()[0].unlink()  # the uninterrupted one asks a living teacher
    train("deit_lt", "digits-lt", tmp_path / "whole", **settings)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_a_paco_teacher_with_a_weak_view_and_a_release(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {
        "teacher_method": "paco",
        "teacher_view": "weak",
        "release": 0.5,
        "repeats": 1,
        "mixup": 0.0,
        "cutmix": 0.0,
    }
    result = train(
        "deit_lt", "digits-lt", tmp_path / "run", teacher_epochs=1, **keywords, **STUDENT
    )
    assert result.row is not None
    assert result.row["epochs"] == {"teacher": 1, "student": 2}
    terms = json.loads((tmp_path / "run" / "teacher" / "journal.jsonl").read_text().splitlines()[0])
    assert "terms/class" in terms


# The last of four steps begins at three quarters of training: before the steps at 0.8 and 0.9, and
# well down the cosine.
@pytest.mark.parametrize(
    ("method", "schedule", "last"),
    [
        ("ldam", None, 0.0154),
        ("ldam", "steps", 0.1),
        ("paco", None, 0.05),
        ("paco", "cosine", 0.0077),
    ],
)
def test_the_teachers_lr_follows_the_requested_schedule(
    method: str, schedule: str | None, last: float, tmp_path: Path
) -> None:
    keywords: dict[str, Any] = {
        "teacher_method": method,
        "teacher_schedule": schedule,
        **STUDENT,
        "epochs": 1,
    }
    train("deit_lt", "digits-lt", tmp_path / "run", teacher_epochs=2, **keywords)
    end = json.loads((tmp_path / "run" / "teacher" / "journal.jsonl").read_text().splitlines()[-1])
    assert end["rate"] == pytest.approx(last, rel=0.01)


def test_deit_trains_its_teacher_and_then_itself(tmp_path: Path) -> None:
    result = train("deit", "digits-lt", tmp_path / "run", teacher_epochs=1, **STUDENT)
    assert result.row is not None
    assert result.row["epochs"] == {"teacher": 1, "student": 2}
    assert not (tmp_path / "run" / "analysis" / "entropy.npz").exists(), (
        "no image is out of its distribution"
    )


def test_deits_teacher_has_learnt_from_the_students_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(
        monkeypatch,
        tmp_path / "run",
        "deit",
        first="teacher",
        patch=4,
        threads=1,
        device="cpu",
        mixup=0.3,
    )
    taught, student = captured["teacher"], captured["student"]
    assert taught.data.view == student.data.view == RandAugment(8, flip=False, pad=1)
    assert taught.mix == student.mix.first
    assert taught.mix.mixup == 0.3
    assert not taught.method.loss.margin.any()
    assert taught.method.weights is None or taught.method.weights(Clock(99, 100, 99, 100)) is None
    assert not hasattr(captured["teacher's optimizer"], "rho")
    assert student.method.weights is None


def test_a_weak_view_is_the_teachers_alone_and_nothing_is_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keywords: dict[str, Any] = {"patch": 4, "threads": 1, "device": "cpu", "teacher_view": "weak"}
    captured = stages(
        monkeypatch, tmp_path / "run", "deit_lt", first="teacher", mixup=0.0, cutmix=0.0, **keywords
    )
    assert captured["student"].data.view == TwoViews(
        RandAugment(8, flip=False, pad=1), CropFlip(8, pad=1, flip=False)
    )
    assert captured["student"].mix.first == SplitViews()
    with pytest.raises(
        ValueError, match=r"--teacher-view weak .* before mixing: pass --mixup 0 --cutmix 0"
    ):
        train("deit_lt", "digits-lt", tmp_path / "mixed", **keywords)


def test_before_anything_is_learnt_another_teacher_may_teach(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(teacher, tmp_path / "copy"))

    def deadly(self: Any, index: int, *, start: int = 0) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    with monkeypatch.context() as patched:
        patched.setattr(TrainLoader, "epoch", deadly)
        with pytest.raises(KeyboardInterrupt):
            train("deit_lt", "digits-lt", tmp_path / "run", teacher=str(copy), **STUDENT)
    assert not list((tmp_path / "run").glob("*/last.pt"))
    train("deit_lt", "digits-lt", tmp_path / "run", teacher=str(teacher), **STUDENT)
    assert json.loads((tmp_path / "run" / "teacher.json").read_text())["teacher"] == str(teacher)


def test_a_dry_run_writes_no_labels(tmp_path: Path) -> None:
    train("deit_lt", "digits-lt", tmp_path / "run", dry_run=True, teacher_epochs=1, **STUDENT)
    assert not (tmp_path / "run").exists()
    assert not labels()


def test_a_teacher_sees_images_at_the_size_it_was_trained_on(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for memory in (1 << 30, 0):  # enlarged in memory, or whenever they are looked at
        monkeypatch.setattr("longtail.data.images.reading.MEMORY", memory)
        train(
            "deit_lt",
            "digits-lt",
            tmp_path / str(memory),
            teacher_epochs=2,
            size=16,
            **{**STUDENT, "epochs": 1},
        )
        copied = files.read(tmp_path / str(memory) / "teacher" / "model")
        assert copied.size == 8
        assert equal(copied.network.state_dict(), load(teacher).network.state_dict()), (
            "the one that its recipe trains"
        )
        assert load(tmp_path / str(memory), device="cpu").size == 16


def test_a_teacher_that_was_changed_is_refused_when_its_student_goes_on(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(teacher, tmp_path / "copy"))
    complete = TrainLoader.epoch

    def deadly(self: Any, index: int, *, start: int = 0) -> Iterator[Any]:
        if index == 1:
            raise KeyboardInterrupt
        yield from complete(self, index, start=start)

    with monkeypatch.context() as patched:
        patched.setattr(TrainLoader, "epoch", deadly)
        with pytest.raises(KeyboardInterrupt):
            train("deit_lt", "digits-lt", tmp_path / "run", teacher=str(copy), **STUDENT)
    weights = load_file(copy / "model" / "model.safetensors")
    save_file(
        {name: -tensor for name, tensor in weights.items()}, copy / "model" / "model.safetensors"
    )
    with pytest.raises(
        ValueError,
        match=(
            r"expected the teacher that this run started with, .*copy with weights \w{12}, got"
            r" .*restore it"
        ),
    ):
        train("deit_lt", "digits-lt", tmp_path / "run", teacher=str(copy), **STUDENT)


def test_the_student_has_the_settings_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keywords: dict[str, Any] = {
        "patch": 4,
        "batch": 32,
        "accumulate": 2,
        "threads": 1,
        "device": "cpu",
        "release": 0.5,
        "defer": 0.75,
    }
    captured = stages(monkeypatch, tmp_path / "run", "deit_lt", first="teacher", **keywords)
    taught, student = captured["teacher"], captured["student"]
    method = student.method

    def at(share: float) -> Clock:
        return Clock(step=int(1000 * share), steps=1000, epoch=int(100 * share), epochs=100)

    counts = open_data("digits-lt").counts
    assert method.weights(at(0.74)) is None
    assert torch.equal(method.weights(at(0.76)), class_balanced_weights(counts, beta=0.9999))
    assert (method.loss.smoothing, method.imitation.smoothing) == (0.1, 0.0)
    assert [method.trust(at(share)) for share in (0.2, 0.5, 0.75, 1.0)] == pytest.approx(
        [1, 1, 0.5, 0]
    )
    assert student.data.sampler == RepeatedAugmentation(3)
    assert student.data.view == RandAugment(8, flip=False, pad=1)
    rates = [student.schedule(at(share)) for share in (0.025, 0.05, 0.525, 1.0)]
    assert rates == pytest.approx([0.5, 1, 0.52, 0.04], abs=5e-3)  # down to 4% of the rate
    group, *_ = captured["student's optimizer"].param_groups
    assert (group["lr"], group["betas"]) == (pytest.approx(2e-3 * 64 / 256), (0.9, 0.999))
    batch = {
        "image": torch.randint(256, (8, 3, 8, 8), dtype=torch.uint8),
        "target": torch.arange(8),
        "position": torch.arange(8),
    }
    mixing = student.mix.first
    assert mixing(dict(batch), at(0.7))["target"].ndim == 2
    assert mixing(dict(batch), at(0.8))["target"].ndim == 1, "mixing ends when re-weighting begins"

    assert taught.epochs == 60
    assert taught.data.view == CropFlip(8, pad=1, flip=False)
    assert taught.method.loss.margin.max() == pytest.approx(15.0)  # 0.5 times 30
    assert torch.equal(taught.method.weights(at(0.81)), class_balanced_weights(counts, beta=0.9999))
    assert captured["teacher's optimizer"].rho == 0.1


def test_parts_of_a_student_are_chosen_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(
        monkeypatch,
        tmp_path / "run",
        "deit_lt",
        first="teacher",
        network="fast_vit",
        distill="soft",
        class_loss="balanced_softmax",
        answer="probabilities",
        teacher_method="balanced_softmax",
        ema=0.99,
        **QUICK,
    )
    method, counts = captured["student"].method, open_data("digits-lt").counts
    assert isinstance(method.loss, LogitAdjusted)
    assert torch.equal(method.loss.bias, LogitAdjusted(counts).bias)
    assert method.loss.smoothing == 0.1
    assert method.head.spec["answer"] == "probabilities"
    assert captured["student"].mix.then.labels == SoftLabels()
    assert list(captured["student"].averages) == ["ema"]
    taught = captured["teacher"]
    assert isinstance(taught.method.loss, LogitAdjusted)
    assert (taught.epochs, taught.data.view) == (60, CropFlip(8, pad=1, flip=False, cutout=4))


def test_a_pretrained_student_of_soft_labels(teacher: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    fast: dict[str, Any] = {**QUICK, "network": "fast_vit", "epochs": 1}
    train("masked_autoencoder", "digits-lt", encoder, mask=0.5, probe_epochs=1, **fast)
    chosen: dict[str, Any] = {
        "distill": "soft",
        "answer": "dist",
        "teacher": str(teacher),
        "repeats": 1,
    }
    for name in ("run", "again"):
        train("deit_lt", "digits-lt", tmp_path / name, weights=str(encoder), **chosen, **fast)
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "again"))
    row = read_row(tmp_path / "run")
    assert row["pretraining"] is None, "the same images"
    assert row["minutes_before"] > 0
    assert [path.stat().st_size for path in labels()] == [len(open_data("digits-lt").train) * 20]
    saved, _ = read_predictions(tmp_path / "run" / "predictions" / "test.npz")
    assert np.array_equal(saved.logits["logits"], saved.logits["dist"])
    assert not np.array_equal(saved.logits["logits"], saved.logits["cls"])
    started = read_weights(encoder).tensors["cls_token"]
    random = build({"name": "fast_vit", "size": 8, "pool": "tokens"}).state_dict()
    key = "network.body.transformer.dist_token"
    trained = weights(tmp_path / "run")[key]
    assert (trained - started).norm() < (trained - random[key.removeprefix("network.")]).norm()


def test_what_a_teacher_without_sam_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--teacher-rho 0\.2 has no effect with --teacher-method"):
        train(
            "deit_lt",
            "digits-lt",
            tmp_path,
            teacher_method="balanced_softmax",
            teacher_rho=0.2,
            **STUDENT,
        )


def test_another_teacher_is_another_file(teacher: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(teacher, tmp_path / "other"))
    network, classes, size = files.read(other / "model")
    with torch.no_grad():
        next(network.parameters()).flatten()[0] += 1e-3
    files.write(other / "model", network, classes=classes, size=size)
    for name, run in (("a", teacher), ("b", other)):
        train("deit_lt", "digits-lt", tmp_path / name, teacher=str(run), **{**STUDENT, "epochs": 1})
    assert len(labels()) == 2
    assert training_data(str(other), open_data("digits-lt")) is None


def test_a_teacher_that_has_seen_other_images_stands_on_the_row(
    teacher: Path, tmp_path: Path
) -> None:
    data = open_data("digits-lt")
    complete = train(
        "deit_lt",
        "digits-lt",
        tmp_path / "run",
        protocol="paper",
        teacher=str(teacher),
        **{**STUDENT, "epochs": 1},
    )
    assert complete.row is not None
    # Without the validation images
    assert complete.row["pretraining"] == f"digits-lt, {data.hash[:12]} (teacher)"
    took = read_row(teacher)["minutes"]
    assert (
        complete.row["minutes_before"]
        == minutes_of(str(teacher / "train"))
        == minutes_of(str(teacher / "model"))
        == took
        > 0
    )
    assert minutes_of("timm:resnet18") == minutes_of(str(tmp_path)) == 0
    assert training_data(str(teacher / "train"), data) is None
    assert training_data("timm:resnet18", data) == "timm:resnet18 (teacher)"
    assert training_data(str(tmp_path), data) == "unknown data (teacher)"
    tuned = Path(shutil.copytree(teacher, tmp_path / "tuned"))
    row = json.loads((tuned / "row.json").read_text())
    (tuned / "row.json").write_text(json.dumps({**row, "pretraining": "ImageNet-1k"}))
    assert training_data(str(tuned), data) == "ImageNet-1k (teacher)"
    (tuned / "row.json").write_text(json.dumps({**row, "minutes_before": 7.0}))
    assert minutes_of(str(tuned)) == took + 7


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"network": "fast_cnn"}, "expected a network with a distillation token, got fast_cnn"),
        ({"network": "timm:test_vit"}, "test_vit has no distillation token"),
        ({"defer": 1.1}, "--defer of 0 or more and of at most 1, got 1.1"),
        ({"defer": -0.1}, "--defer of 0 or more and of at most 1, got -0.1"),
        ({"mix_until": 2.0}, "--mix-until of 0 or more and of at most 1, got 2"),
        ({"release": 1.0}, "0 <= start < end <= 1, got start 1.0"),
        ({"teacher": "nowhere"}, "expected a run folder, got nothing at nowhere"),
        ({"warmup": 2.0}, "--warmup of 0 or more and of at most 1, got 2"),
        ({"repeats": 0}, "got 0"),
        ({"smoothing": 1.5}, "--smoothing of at most 1, got 1.5"),
        ({"weight_decay": -1.0}, "--weight-decay of 0 or more, got -1"),
        ({"epochs": 0}, "stage 'student': epochs, batches"),
        ({"teacher_epochs": 0}, "stage 'teacher': epochs, batches"),
        ({"teacher": "timm:no_such_model"}, "timm has no network 'no_such_model'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_learnt(
    keywords: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train("deit_lt", "digits-lt", tmp_path / "run", **{**STUDENT, **keywords})
    assert not list((tmp_path / "run").glob("*/last.pt"))


def test_best_needs_validation_images_and_says_so_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--keep best needs validation images"):
        train("deit_lt", "digits-lt", tmp_path / "run", protocol="paper", keep="best", **STUDENT)
    assert not list((tmp_path / "run").glob("*/last.pt"))


def test_an_unfinished_teacher_is_refused(teacher: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(teacher, tmp_path / "copy"))
    (copy / "row.json").unlink()
    with pytest.raises(ValueError, match="expected a finished run, got an unfinished one at"):
        train("deit_lt", "digits-lt", tmp_path / "run", teacher=str(copy), **STUDENT)
    with pytest.raises(
        ValueError, match="expected a finished teacher, got an unfinished one or none at"
    ):
        train("deit_lt", "digits-lt", tmp_path / "run", teacher=str(copy / "train"), **STUDENT)


def test_a_teacher_of_other_classes_or_another_order_is_refused_with_both(tmp_path: Path) -> None:
    data = open_data("digits-lt")
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    for name, classes in (("few", ("cat", "dog")), ("order", tuple("0123465789"))):
        files.write(
            tmp_path / name / "model",
            Classifier(network, Linear(network.dim, len(classes))),
            classes=classes,
            size=8,
        )
    with pytest.raises(
        ValueError,
        match=(
            r"digits-lt, got .*data's 10 it lacks 0, 1, 2, 3, 4, \.\.\.; of its 2 the data lacks"
            r" cat, dog\."
        ),
    ):
        read_teacher(str(tmp_path / "few"), data)
    with pytest.raises(ValueError, match="another order: class 5 is '5' in the data and '6' for"):
        read_teacher(str(tmp_path / "order"), data)


def test_a_teacher_may_have_larger_images_and_repeated_augmentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {**QUICK, "teacher_size": 16, "teacher_epochs": 1}
    built = stages(monkeypatch, tmp_path / "deit", "deit", teacher_repeats=3, **settings)
    assert built["teacher"].data.view == RandAugment(16, flip=False, pad=2)
    assert built["teacher"].data.sampler == RepeatedAugmentation(3)
    assert built["teacher"].method.network.spec["size"] == 16
    for method in ("ldam", "paco", "balanced_softmax"):
        more = {"teacher_method": method, **settings}
        built = stages(monkeypatch, tmp_path / method, "deit_lt", **more)
        assert built["teacher"].data.view.size == 16
        assert built["teacher"].data.sampler == Instance()


def test_a_larger_teacher_labels_the_images_of_its_student(tmp_path: Path) -> None:
    train("deit", "digits-lt", tmp_path / "run", teacher_size=12, teacher_epochs=1, **STUDENT)
    assert files.read(tmp_path / "run" / "teacher" / "model").size == 12
    assert read_row(tmp_path / "run")["keywords"]["teacher_size"] == 12
    with pytest.raises(ValueError, match="--teacher-size 12 has no effect with --teacher"):
        train(
            *("deit", "digits-lt", tmp_path / "other"),
            teacher=str(tmp_path / "run" / "teacher"),
            teacher_size=12,
            **STUDENT,
        )


def test_a_custom_student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"student_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "from longtail.nn.vit import vit_mini\n"
        "def tiny(size, *, patch=None, pool='tokens', drop_path=0.0):\n"
        "    return vit_mini(size, patch=patch or 2, pool=pool, width=16, depth=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options: dict[str, Any] = {"threads": 1, "device": "cpu", "epochs": 1, "teacher_epochs": 1}
    network = f"{module}:tiny"
    train("deit_lt", "digits-lt", tmp_path / "run", network=network, dry_run=True, **options)
