"""Evaluation and prediction are one pipeline: the same pixels, the same outputs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from finished import classifier
from PIL import Image

from longtail.data.loader import EvalLoader
from longtail.data.open import open_data
from longtail.data.request import Geometry
from longtail.engine.machine import Machine
from longtail.engine.predicting import predictor
from longtail.errors import LongtailError
from longtail.nn import Classifier, CosineExperts, build
from longtail.runs.images import Preprocessing
from longtail.runs.inference import (
    BATCH,
    DECODERS,
    SMALL,
    decoding_threads,
    map_ahead,
    network_outputs,
    predict_images,
    predict_split,
    predict_splits,
    read_ahead,
    split_batches,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of six images, none of them square."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("a", "b"):
        (folder / name).mkdir()
        for number in range(6):
            shape = (int(rng.integers(20, 30)), int(rng.integers(5, 15)), 3)
            Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(
                folder / name / f"{number}.png"
            )
    return folder


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("geometry", get_args(Geometry))
@pytest.mark.parametrize("size", [8, 12])
def test_files_are_predicted_as_rows_of_a_split_are(
    folder: Path, size: int, geometry: Geometry, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not memory:
        monkeypatch.setattr("longtail.data.images.reading.MEMORY", 0)
    data = open_data(str(folder), size=12, geometry=geometry)
    paths = [folder / name for name in data.test.ids]
    preprocessing = Preprocessing.of(data, size)
    (batch,) = EvalLoader(data.test, size=size, batch=64).epoch()
    (read,) = read_ahead(paths, preprocessing, machine=Machine())
    assert torch.equal(read.pixels(), batch["image"])
    assert (read.images, read.bad) == (tuple(paths), ())

    network = classifier(size=size).eval()
    rows = predict_split(network, data.test, size=size, tta="none", machine=Machine())
    predict = predictor(network_outputs(network), Machine())
    outputs = predict_images(predict, paths, preprocessing, machine=Machine())
    assert np.array_equal(outputs["logits"].numpy(), rows.logits["logits"])


def test_a_network_gives_all_its_heads_and_a_plain_module_its_logits(folder: Path) -> None:
    backbone = build({"name": "fast_cnn_experts", "size": 8, "width": 8})
    experts = Classifier(backbone, CosineExperts(backbone.dim, 2)).eval()
    data = open_data(str(folder), size=8)
    keywords: dict[str, Any] = {"size": 8, "tta": "none", "machine": Machine()}
    assert len(predict_split(experts, data.test, **keywords).logits) > 1
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
    assert list(predict_split(plain, data.test, **keywords).logits) == ["logits"]
    with pytest.raises(LongtailError, match="none or flip, got 'twice'"):
        predict_split(plain, data.test, **keywords | {"tta": "twice"})


def test_threads_stay_ahead_but_not_far_and_in_order() -> None:
    started: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> int:
        with lock:
            started.append(number)
        return number

    given = map_ahead(work, range(50), threads=3)
    assert next(given) == 0
    assert max(started) <= 3
    assert [*given] == [*range(1, 50)]


def test_without_threads_work_is_done_when_it_is_taken() -> None:
    started: list[int] = []
    given = map_ahead(started.append, range(3), threads=0)
    next(given)
    assert started == [0]
    assert len([*given]) == 2
    assert started == [0, 1, 2]


def test_large_files_are_decoded_by_threads_and_small_ones_are_not(tmp_path: Path) -> None:
    for name, size in (("small.png", SMALL - 1), ("large.png", SMALL)):
        (tmp_path / name).write_bytes(bytes(size))
    assert decoding_threads([tmp_path / "small.png"], Machine()) == 0
    assert decoding_threads([tmp_path / "large.png"], Machine()) == DECODERS
    assert decoding_threads([tmp_path / "none.png"], Machine()) == 0
    assert decoding_threads([tmp_path / "small.png"], Machine(device="cuda")) == 1


def test_an_error_in_a_thread_is_the_callers() -> None:
    def work(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    results: Iterator[int] = map_ahead(work, range(50), threads=2)
    with pytest.raises(ValueError, match="two"):
        list(results)


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (5, 2), (1000, 4)])
def test_batches_hold_everything_once(count: int, threads: int) -> None:
    batches = list(split_batches(range(count), threads=threads))
    assert [index for part in batches for index in part] == [*range(count)]
    assert max(map(len, batches)) <= BATCH
    assert len(batches) >= min(count, threads)


def test_splits_are_also_predicted_without_test_time_averaging(folder: Path) -> None:
    data, network = open_data(str(folder), size=8), classifier(size=8).eval()
    keywords: dict[str, Any] = {"size": 8, "machine": Machine()}
    results = predict_splits(network, data.evaluated, tta="flip", **keywords)
    for tta in ("none", "flip"):
        alone = predict_split(network, data.test, tta=tta, **keywords)
        assert np.array_equal(results[tta]["test"].logits["logits"], alone.logits["logits"])
    assert [*predict_splits(network, data.evaluated, tta="none", **keywords)] == ["none"]
