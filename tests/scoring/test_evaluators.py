from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import ended
from torch import Tensor

from longtail.core import NonFinite
from longtail.records.groups import Groups
from longtail.records.predictions import read_predictions
from longtail.scoring.evaluators import Accuracy, ScorerEvaluator, collect, flipped
from longtail.scoring.long_tail import LongTailScorer

GROUPS = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})


class Rows:
    """Images whose pixels are their logits; batches hold these indices."""

    def __init__(self, batches: Sequence[Sequence[int]], target: Sequence[int]) -> None:
        self.batches, self.target = batches, torch.tensor(target)
        self.image = torch.nn.functional.one_hot(self.target, 3).float()[:, None, None]

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Mapping[str, Any]]:
        for batch in self.batches[start:]:
            rows = torch.tensor(batch)
            yield {"image": self.image[rows], "target": self.target[rows], "index": rows}


def predict(image: Tensor) -> Mapping[str, Tensor]:
    return {"logits": image[:, 0, 0], "cls": -image[:, 0, 0]}


def test_collect_sorts_by_index_and_counts_each_image_once() -> None:
    predictions = collect(Rows([[3, 1], [0, 2], [2, 3]], [2, 1, 0, 1]), predict)
    assert predictions.index.tolist() == [0, 1, 2, 3]
    assert predictions.target.tolist() == [2, 1, 0, 1]
    assert predictions.logits["logits"].argmax(1).tolist() == [2, 1, 0, 1]
    assert predictions.logits["logits"].dtype == np.float32


class Domains(Rows):
    """The same with a column."""

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Mapping[str, Any]]:
        for batch in super().epoch(index, start=start):
            yield {**batch, "domain": 10 * batch["index"], "position": batch["index"]}


def test_collect_gathers_the_columns_of_batches() -> None:
    predictions = collect(Domains([[3, 1], [0, 2], [2, 3]], [2, 1, 0, 1]), predict)
    assert {name: values.tolist() for name, values in predictions.columns.items()} == {
        "domain": [0, 10, 20, 30]
    }
    assert [*predictions.logits] == ["logits", "cls"]
    accuracy = Accuracy(Domains([[0, 1, 2, 3]], [2, 1, 0, 1]), classes=3, groups=GROUPS)
    assert "domain/top1" not in accuracy(predict)


def test_accuracy_names_heads_and_leaves_out_empty_groups() -> None:
    numbers = Accuracy(Rows([[0, 1], [2]], [0, 0, 1]), classes=3, groups=GROUPS)(predict)
    assert numbers == {
        "top1": 1.0,
        "balanced": 1.0,
        "many": 1.0,
        "medium": 1.0,
        "cls/top1": 0.0,
        "cls/balanced": 0.0,
        "cls/many": 0.0,
        "cls/medium": 0.0,
    }
    assert all(type(value) is float for value in numbers.values())


def test_a_scorer_is_evaluated_for_each_head_with_the_loss() -> None:
    rows = Rows([[0, 1], [2]], [0, 0, 1])
    numbers = ScorerEvaluator(rows, LongTailScorer(GROUPS))(predict)
    plain = Accuracy(rows, classes=3, groups=GROUPS)(predict)
    assert {name: numbers[name] for name in plain} == plain
    assert set(numbers) - set(plain) == {"loss", "cls/loss"}
    assert numbers["loss"] == pytest.approx(np.log(np.e + 2) - 1)
    assert numbers["cls/loss"] == pytest.approx(np.log(np.exp(-1) + 2) + 1)


def test_flipped_averages_both_passes() -> None:
    images = torch.rand(5, 3, 4, 6)

    def corner(image: Tensor) -> Mapping[str, Tensor]:
        return {"logits": image[:, :, 0, 0], "cls": 2 * image[:, :, 0, 0]}

    both = flipped(corner)(images)
    expected = (images[:, :, 0, 0] + images[:, :, 0, -1]) / 2
    torch.testing.assert_close(both["logits"], expected)
    torch.testing.assert_close(both["cls"], 2 * expected)
    torch.testing.assert_close(flipped(corner)(images.flip(-1))["logits"], expected)


def test_nothing_to_evaluate_is_refused() -> None:
    with pytest.raises(ValueError, match="this split is empty"):
        collect(Rows([], [0]), predict)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_nonfinite_predictions_say_that_training_diverged(wrong: float) -> None:
    def diverged(image: Tensor) -> Mapping[str, Tensor]:
        logits = image[:, 0, 0]
        return {
            "logits": logits,
            "cls": torch.where(torch.arange(len(logits))[:, None] == 0, wrong, logits),
        }

    with pytest.raises(
        NonFinite, match=r"predictions \(cls\) stopped being finite for 2 of 3 images"
    ):
        collect(Rows([[0, 1], [2]], [0, 1, 2]), diverged)


def test_a_head_cannot_be_called_target() -> None:
    with pytest.raises(ValueError, match=r"got \['target'\]"):
        collect(
            Rows([[0]], [0]), lambda image: {"logits": image[:, 0, 0], "target": image[:, 0, 0]}
        )


TOGETHER = """
import sys, pathlib, torch
import torch.distributed as dist
from longtail.scoring.evaluators import collect
from longtail.records.predictions import write_predictions

folder, rank = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)

class Shard:
    def __init__(self, batches): self.batches = batches
    def __len__(self): return len(self.batches)
    def epoch(self, index, *, start=0):
        for batch in self.batches:
            rows = torch.tensor(batch)
            yield {"image": rows[:, None].float(), "target": rows % 3, "index": rows}

def predict(image):
    return {"logits": image * torch.tensor([1.0, 2.0, 3.0]), "cls": image.expand(-1, 3)}

# Five images: rank 0 sees three; rank 1 sees two and repeats image 0 to fill its shard.
shards = [[[0, 2], [4]], [[1, 3], [0]]]
write_predictions(folder / f"{rank}.npz", collect(Shard(shards[rank]), predict), list("abcde"))
try:
    collect(Shard([[[0]], []][rank]), predict)
except ValueError as error:
    (folder / f"{rank}.txt").write_text(str(error))
dist.destroy_process_group()
"""


def test_two_processes_both_have_all_predictions(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(tmp_path), str(rank)], env=environment
        )
        for rank in range(2)
    ]
    with ended(*both):
        assert [process.wait(timeout=120) for process in both] == [0, 0]
    for rank in range(2):
        predictions, ids = read_predictions(tmp_path / f"{rank}.npz")
        assert predictions.index.tolist() == [0, 1, 2, 3, 4]
        assert predictions.target.tolist() == [0, 1, 2, 0, 1]
        assert ids.tolist() == list("abcde")
        np.testing.assert_array_equal(
            predictions.logits["logits"], np.arange(5)[:, None] * np.array([1, 2, 3])
        )
        np.testing.assert_array_equal(
            predictions.logits["cls"], np.repeat(np.arange(5)[:, None], 3, axis=1)
        )
        assert "each of 2 processes" in (tmp_path / f"{rank}.txt").read_text()


def test_predictions_are_freed_head_by_head_and_not_copied_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Many:
        def __len__(self) -> int:
            return 64

        def epoch(self, index: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
            for part in range(64):
                rows = torch.arange(32 * part, 32 * part + 32)
                yield {"image": torch.zeros(32, 1), "target": rows % 7, "index": rows}

    sizes: list[int] = []  # of the parts, which numpy made: torch's own memory is not traced

    def gathered(rows: Tensor) -> Tensor:
        sizes.append(tracemalloc.get_traced_memory()[0])
        return rows

    monkeypatch.setattr("longtail.processes.gather", gathered)
    tracemalloc.start()
    predictions = collect(
        Many(),
        lambda image: {
            name: torch.from_numpy(np.zeros((32, 1000), dtype=np.float32))
            for name in ("logits", "a", "b")
        },
    )
    copied, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(values.nbytes for values in predictions.logits.values())
    assert size == 3 * 2048 * 1000 * 4
    assert peak < 1.2 * size
    assert copied < 0.1 * size
    assert sizes[0] < 0.75 * size
    assert sizes[2] < 0.1 * size
