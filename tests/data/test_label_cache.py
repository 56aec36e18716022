"""A teacher runs once per image, and its labels are cached by everything that determines them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from children import ended
from torch import nn
from toys import Brightest, labelled_batch

from longtail.core import BatchTransform, Clock, nothing
from longtail.data import label_cache, teacher_labels
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.mixing import MixupCutMix
from longtail.data.open import open_data
from longtail.data.samplers import RepeatedAugmentation
from longtail.data.views import CropFlip, TwoViews
from longtail.schedules import Until

CLOCK = Clock(0, 4, 0, 2)


def test_labels_are_cached_after_the_first_request(tmp_path: Path) -> None:
    teacher = Brightest()
    labelled = teacher_labels.AddTeacherLabels(teacher)
    cached = label_cache.CachedTeacherLabels(
        labelled, label_cache.LabelFile(tmp_path / "x.bin", epochs=2, draws=10, classes=3)
    )
    first = cached(labelled_batch(), CLOCK)
    assert teacher.calls == 1
    repeated = label_cache.CachedTeacherLabels(
        labelled, label_cache.LabelFile(tmp_path / "x.bin", epochs=2, draws=10, classes=3)
    )
    known = repeated(labelled_batch(), CLOCK)
    assert teacher.calls == 1
    assert torch.equal(known["teacher_target"], first["teacher_target"])
    assert known["teacher_target"].dtype == first["teacher_target"].dtype == torch.int64
    repeated(labelled_batch(), Clock(2, 4, 1, 2))  # another epoch
    repeated(labelled_batch(4, first=3), CLOCK)  # one draw is known, three are not
    assert teacher.calls == 3
    assert (tmp_path / "x.bin").stat().st_size == 20


def test_a_torn_file_is_repaired_and_its_labels_are_recomputed(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    label_cache.LabelFile(path, epochs=1, draws=8, classes=3).write(
        0, torch.arange(8), torch.ones(8, dtype=torch.long)
    )
    path.write_bytes(path.read_bytes()[:6])
    store = label_cache.LabelFile(path, epochs=1, draws=8, classes=3)
    assert store.read(0, torch.arange(6)) is not None
    assert store.read(0, torch.arange(8)) is None
    path.write_bytes(bytes([9] * 8))
    assert (
        label_cache.LabelFile(path, epochs=1, draws=8, classes=3).read(0, torch.arange(8)) is None
    ), "there is no class 8 of 3"


def test_several_processes_use_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    program = (
        "import sys, torch; from pathlib import Path; from longtail.data.label_cache import"
        " LabelFile\nstore, label = LabelFile(Path(sys.argv[1]), epochs=2, draws=30, classes=3),"
        " int(sys.argv[2])\nstore.write(1, torch.arange(label, 30, 3), torch.full((10,), label))"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(label)])
        for label in range(3)
    ]
    with ended(*writers):
        assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    store = label_cache.LabelFile(path, epochs=2, draws=30, classes=3)
    labels = store.read(1, torch.arange(30))
    assert labels is not None
    assert labels.tolist() == [0, 1, 2] * 10
    assert store.read(0, torch.arange(30)) is None


def test_many_classes_take_two_bytes_each(tmp_path: Path) -> None:
    store = label_cache.LabelFile(tmp_path / "x.bin", epochs=1, draws=4, classes=1000)
    store.write(0, torch.arange(4), torch.tensor([0, 254, 255, 999]))
    labels = store.read(0, torch.tensor([3, 1]))
    assert labels is not None
    assert labels.tolist() == [999, 254]
    assert (tmp_path / "x.bin").stat().st_size == 8
    with pytest.raises(ValueError, match="1 to 65,534 classes"):
        label_cache.LabelFile(tmp_path / "y.bin", epochs=1, draws=4, classes=70_000)


def test_probabilities_are_stored_as_they_are_learnt(tmp_path: Path) -> None:
    teacher, labels = Brightest(), teacher_labels.SoftLabels()
    labelled = teacher_labels.AddTeacherLabels(teacher, labels)

    def cached() -> label_cache.CachedTeacherLabels:
        store = label_cache.LabelFile(
            tmp_path / "x.bin", epochs=2, draws=10, classes=3, labels=labels
        )
        return label_cache.CachedTeacherLabels(labelled, store)

    given = labelled_batch()
    first = cached()(given, CLOCK)["teacher_target"]
    exact = given["image"].double().mean((2, 3)).softmax(1)
    assert torch.allclose(first.double(), exact, atol=1e-3)
    assert teacher.calls == 1
    repeated = cached()(given, CLOCK)["teacher_target"]
    assert teacher.calls == 1
    assert torch.equal(repeated, first), "a run with stored labels is one without, to the bit"
    assert repeated.dtype == first.dtype == torch.float32
    cached()(labelled_batch(4, first=3), CLOCK)  # one draw is known, three are not
    assert teacher.calls == 2
    assert (tmp_path / "x.bin").stat().st_size == 10 * 3 * 2
    (tmp_path / "x.bin").write_bytes(bytes([60] * 60))  # each more than 1
    cached()(given, CLOCK)
    assert teacher.calls == 3


def test_certain_and_uncertain_teachers_of_many_classes_can_be_stored(tmp_path: Path) -> None:
    labels = teacher_labels.SoftLabels()
    store = label_cache.LabelFile(
        tmp_path / "x.bin", epochs=1, draws=2, classes=8142, labels=labels
    )
    logits = torch.zeros(2, 8142)
    logits[0, 7] = 100.0
    target = labels(logits)
    store.write(0, torch.arange(2), target)
    stored = store.read(0, torch.arange(2))
    assert stored is not None
    assert torch.equal(stored, target)
    assert torch.allclose(stored, torch.softmax(logits, 1), atol=1e-7, rtol=1e-2)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_data("digits-lt")


MIX = Until(0.9, MixupCutMix(classes=10))


def key(
    data: Dataset, *, teacher: nn.Module | None = None, mix: BatchTransform = MIX, **changed: Any
) -> dict[str, Any]:
    loader: dict[str, Any] = {
        "view": CropFlip(8, pad=1),
        "batch": 32,
        "seed": 0,
        "sampler": RepeatedAugmentation(3),
    }
    other: dict[str, Any] = {"seed": 0, "stage": "student", "epochs": 3, "accumulate": 1}
    for name, value in changed.items():
        (loader if name in ("view", "batch", "sampler", "view_seed") else other)[
            "seed" if name == "view_seed" else name
        ] = value
    student: Any = TrainLoader(data.train, **loader)
    return label_cache.cache_key(teacher or Brightest(), student, data, mix=mix, **other)


class Elsewhere(Brightest):
    """The same, but on another device."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        yield nn.Parameter(torch.empty(0, device="meta"))


def test_any_change_of_what_determines_the_labels_makes_another_file(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = key(data)
    assert key(data) == usual
    assert (usual["device"], key(data, teacher=Elsewhere())["device"]) == ("cpu", "meta")
    json.dumps(usual)
    teacher = Brightest()
    nn.init.constant_(teacher.weight[0, 0], 1.0 + 1e-6)
    shorter = replace(data, train=replace(data.train, target=data.train.target.flip(0)))
    others = [
        key(data, teacher=teacher),
        key(shorter),
        key(replace(data, hash="other")),
        key(data, view=CropFlip(8, pad=2)),
        key(data, view=TwoViews(CropFlip(8, pad=1), CropFlip(8, pad=1))),
        key(data, batch=64),
        key(data, view_seed=1),
        key(data, sampler=RepeatedAugmentation(2)),
        key(data, mix=Until(0.8, MixupCutMix(classes=10))),
        key(data, mix=Until(0.9, MixupCutMix(classes=10, mixup=0.2))),
        key(data, mix=nothing),
        key(data, seed=1),
        key(data, stage="other"),
        key(data, epochs=4),
        key(data, accumulate=2),
        key(data, labels=teacher_labels.SoftLabels()),
    ]
    with monkeypatch.context() as patched:
        patched.setattr("longtail.processes.world_size", lambda: 2)
        others.append(key(data))
    monkeypatch.setattr(label_cache, "code", lambda: "edited")
    others.append(key(data))
    texts = {json.dumps(key, sort_keys=True) for key in (usual, *others)}
    assert len(texts) == 1 + len(others)


def test_edited_code_is_other_code(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    hashes = []
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "data" / "views.py").write_text(text)
        hashes.append(label_cache.code.__wrapped__(tmp_path))
    assert hashes[0] == hashes[2] != hashes[1]
    assert label_cache.code() != label_cache.code.__wrapped__(tmp_path)


def test_without_mixing_runs_of_other_seeds_share_a_file(data: Dataset) -> None:
    assert key(data, mix=nothing, seed=1) == key(data, mix=nothing, seed=0)


def test_the_file_lies_in_the_cache_and_says_what_it_is() -> None:
    labelled = teacher_labels.AddTeacherLabels(Brightest())
    for number in (1, 1, 2):
        kept: Any = label_cache.cached_labels(
            labelled, {"number": number}, epochs=1, draws=4, classes=3
        )
        assert isinstance(kept, label_cache.CachedTeacherLabels)
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "longtail" / "labels"
    assert sorted(file.suffix for file in folder.iterdir()) == [".bin", ".bin", ".json", ".json"]
    assert json.loads(kept.store.path.with_suffix(".json").read_text()) == {"number": 2}


def test_where_nothing_can_be_cached_the_teacher_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    labelled = teacher_labels.AddTeacherLabels(Brightest())
    assert label_cache.cached_labels(labelled, {}, epochs=1, draws=4, classes=3) is labelled
    assert "cannot be cached" in capsys.readouterr().err


@pytest.mark.parametrize("problem", ["no room", "no home"])
def test_without_space_or_home_the_teacher_predicts(
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*given: object) -> None:
        raise (
            OSError(28, "No space left on device")
            if problem == "no room"
            else RuntimeError("Could not determine home directory.")
        )

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path) if problem == "no room" else "")
    monkeypatch.setattr(
        "os.posix_fallocate" if problem == "no room" else "pathlib.Path.home", refuse
    )
    labelled = teacher_labels.AddTeacherLabels(Brightest())
    assert label_cache.cached_labels(labelled, {}, epochs=1, draws=4, classes=3) is labelled
    message = capsys.readouterr().err
    assert "cannot be cached" in message
    assert ("No space left" if problem == "no room" else "home directory") in message


@pytest.mark.parametrize("reserved", [True, False])
def test_a_file_has_its_room_before_it_is_written(
    reserved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        # As glibc says where a file system cannot
        raise OSError(errno.EBADF, "Bad file descriptor")

    if not reserved:
        monkeypatch.setattr("os.posix_fallocate", refuse)
    store = label_cache.LabelFile(tmp_path / "x.bin", epochs=10, draws=100_000, classes=3)
    store.write(9, torch.arange(4), torch.ones(4, dtype=torch.long))
    status = store.path.stat()
    assert status.st_size == 1_000_000
    assert 512 * status.st_blocks >= 1_000_000, (
        "a write to a hole on a full disk would kill the process"
    )


def test_the_file_grows_with_the_epochs(tmp_path: Path) -> None:
    store = label_cache.LabelFile(tmp_path / "x.bin", epochs=10**9, draws=1000, classes=3)
    assert store.path.stat().st_size == 1000
    position, target = torch.arange(1000), torch.arange(1000) % 3
    store.write(2, position, target)
    assert store.path.stat().st_size == 3000
    other = label_cache.LabelFile(tmp_path / "x.bin", epochs=10**9, draws=1000, classes=3)
    store.write(4, position, target)
    labels = other.read(4, position)
    assert labels is not None
    assert torch.equal(labels, target), "another process sees epochs that were added later"
    assert other.read(5, position) is None


def test_a_full_disk_leaves_nothing_and_does_not_break_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(descriptor: int, offset: int, size: int) -> None:
        os.ftruncate(descriptor, offset + size - 1)  # as ext4 does: it keeps what it got
        raise OSError(errno.ENOSPC, "No space left on device")

    store = label_cache.LabelFile(tmp_path / "x.bin", epochs=9, draws=1000, classes=3)
    position, target = torch.arange(1000), torch.ones(1000, dtype=torch.long)
    store.write(0, position, target)
    monkeypatch.setattr("os.posix_fallocate", fill)
    for epoch in (1, 2):
        store.write(epoch, position, target)
    assert store.path.stat().st_size == 1000
    assert store.read(0, position) is not None
    assert store.read(1, position) is None
    assert capsys.readouterr().err.count("no more labels of the teacher are cached") == 1
    with pytest.raises(OSError, match="No space left"):
        label_cache.LabelFile(tmp_path / "y.bin", epochs=9, draws=1000, classes=3)
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


def test_the_cache_takes_a_tenth_of_the_free_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(label_cache, "free_space", lambda folder: 50_000)
    labelled = teacher_labels.AddTeacherLabels(Brightest())

    def cache(number: int, draws: int) -> Any:
        return label_cache.cached_labels(
            labelled, {"tenth": number}, epochs=10**9, draws=draws, classes=3
        )

    assert cache(1, 1000).store.epochs == 5
    assert "up to 5 kB for the first 5 epochs, 50 kB are free" in capsys.readouterr().err
    assert cache(2, 6000) is labelled
    assert "one epoch takes 6 kB, and only 50 kB are free" in capsys.readouterr().err
    store = label_cache.LabelFile(cache(3, 10).store.path, epochs=9, draws=1000, classes=3)
    monkeypatch.setattr(label_cache, "free_space", lambda folder: 5000)
    store.write(4, torch.arange(4), torch.ones(4, dtype=torch.long))
    assert "over a tenth of the 5 kB that are free" in capsys.readouterr().err


def test_the_folder_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "longtail" / "labels"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    monkeypatch.setattr(label_cache, "LIMIT", 2500)
    labelled = teacher_labels.AddTeacherLabels(Brightest())
    names = []
    for number in range(4):
        kept: Any = label_cache.cached_labels(
            labelled, {"bounded": number}, epochs=1, draws=1000, classes=3
        )
        os.utime(kept.store.path, (number, number))
        names.append(kept.store.path.stem)
    assert sorted(path.stem for path in folder.glob("*.bin")) == sorted(names[-2:])
    assert sorted(path.stem for path in folder.glob("*.json")) == sorted(names[-2:])


@dataclass(frozen=True)
class Odd:
    part: Any


def test_parts_are_described_to_the_last_field_or_refused() -> None:
    assert label_cache.to_config(Odd((1, "a", None, nothing)))["part"] == [
        1,
        "a",
        None,
        "longtail.core.nothing",
    ]
    for part in (object(), lambda batch, clock: batch, Odd(lambda: 0)):
        with pytest.raises(ValueError, match="make it a dataclass"):
            label_cache.to_config(part)
