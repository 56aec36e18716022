"""DeiT-LT's figures: from a network and data to arrays to figures."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from longtail.analysis import (
    analyse_teacher,
    analyse_tokens,
    analyse_training,
    attention_maps,
    curves,
    entropy,
    feature_rank,
)
from longtail.data.dataset import Dataset, Split
from longtail.data.images.stores import ArrayImages
from longtail.data.mixing import Mixup
from longtail.data.open import open_data
from longtail.data.views import CenterCrop, CropFlip
from longtail.nn import Classifier, TokenHeads, build
from longtail.records.documents import FORMAT
from longtail.records.layout import RunFolder
from longtail.report.figures import write_figures


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_data("digits-lt")


def network(pool: str = "tokens") -> Classifier:
    torch.manual_seed(0)
    backbone = build(
        {"name": "vit_mini", "size": 8, "patch": 2, "width": 16, "depth": 2, "pool": pool}
    )
    return Classifier(backbone, TokenHeads(backbone.dim, 10))


def test_tokens_become_arrays_and_figures(data: Dataset, tmp_path: Path) -> None:
    model = network()
    written = analyse_tokens(model, data, tmp_path, at_most=60, batch=7)
    assert [path.name for path in written] == ["rollout.npz", "attention_distance.npz", "rank.npz"]
    with np.load(tmp_path / "rollout.npz") as stored:
        assert stored["map"].shape == (3, 2, 4, 4)
        assert stored["target"].tolist() == list(data.groups.members["few"])
        assert (
            data.test.target[[data.test.ids.index(name) for name in stored["id"].tolist()]].tolist()
            == stored["target"].tolist()
        )
    few = np.isin(data.train.target.numpy(), data.groups.members["few"])
    images = (
        torch.stack(
            [CenterCrop(8)(data.train.inputs.image(row)) for row in np.flatnonzero(few).tolist()]
        ).float()
        / 255
    )
    maps = attention_maps(model, images)
    with np.load(tmp_path / "attention_distance.npz") as stored:
        i, j = np.divmod(np.arange(16), 4)
        far = 2 * np.hypot(i[:, None] - i, j[:, None] - j)
        slow = (maps.attention[:, 1, 3, 2:, 2:].numpy() * far).sum(-1).mean()
        assert stored["distance"][1, 3] == pytest.approx(slow, rel=1e-4)
    with np.load(tmp_path / "rank.npz") as stored:
        assert stored["rank"].shape == (2, 2)
        assert stored["tokens"].tolist() == ["cls", "dist"]
        assert (stored["rank"] >= 1).all()
    assert [path.name for path in write_figures(tmp_path)] == [
        "attended.svg",
        "locality.svg",
        "ranks.svg",
    ]


def test_ranks_are_of_rare_classes_among_all(data: Dataset, tmp_path: Path) -> None:
    model = network()
    analyse_tokens(model, data, tmp_path, at_most=10_000, batch=200)
    images = (
        torch.stack(
            [CenterCrop(8)(data.train.inputs.image(row)) for row in range(len(data.train))]
        ).float()
        / 255
    )
    tokens = attention_maps(model, images).tokens[:, 1, 1].numpy()
    few = np.isin(data.train.target.numpy(), data.groups.members["few"])
    with np.load(tmp_path / "rank.npz") as stored:
        assert stored["rank"][1, 1] == feature_rank(tokens, tokens[few])
    # Directions are those of an even sample, in which rare classes stay rare
    analyse_tokens(model, data, tmp_path, at_most=60, batch=200)
    sample = np.linspace(0, len(data.train) - 1, 60).astype(int)
    with np.load(tmp_path / "rank.npz") as stored:
        assert stored["rank"][1, 1] == feature_rank(tokens[sample], tokens[few])


def some(split: Split, rows: list[int]) -> Split:
    assert isinstance(split.inputs, ArrayImages)
    taken = split.inputs.take(np.array(rows, dtype=np.int64))
    return replace(
        split, inputs=taken, target=split.target[rows], ids=tuple(split.ids[row] for row in rows)
    )


def test_the_rarest_group_with_enough_images_is_analysed(data: Dataset, tmp_path: Path) -> None:
    few = torch.isin(data.test.target, torch.tensor(data.groups.members["few"]))
    rows = (~few).nonzero().flatten().tolist()
    without = replace(data, test=some(data.test, rows))
    for source, group in ((data, "few"), (without, "medium")):
        analyse_tokens(network(), source, tmp_path, at_most=20)
        with np.load(tmp_path / "rank.npz") as stored:
            assert str(stored["group"]) == group


def test_without_test_images_training_images_are_shown(data: Dataset, tmp_path: Path) -> None:
    none = some(data.test, [])
    analyse_tokens(network(), replace(data, test=none, val=none), tmp_path, at_most=20, images=2)
    with np.load(tmp_path / "rollout.npz") as stored:
        assert set(stored["id"].tolist()) <= set(data.train.ids)


def test_a_transformer_with_a_class_token_alone_has_one_map(data: Dataset, tmp_path: Path) -> None:
    analyse_tokens(network("token"), data, tmp_path, at_most=20, images=2)
    with np.load(tmp_path / "rollout.npz") as stored:
        assert stored["map"].shape == (2, 1, 4, 4)
    with np.load(tmp_path / "rank.npz") as stored:
        assert stored["tokens"].tolist() == ["cls"]
    write_figures(tmp_path)
    with pytest.raises(ValueError, match="expected a group of many, medium, few, got 'tail'"):
        analyse_tokens(network("token"), data, tmp_path, group="tail")


MIX = Mixup(classes=10, alpha=1.0)


class Dim(nn.Module):
    """Says the number of the class that is as bright as the image; mixed images are unlike any."""

    def forward(self, image: Tensor) -> Tensor:
        return 10 * image.flatten(1)[:, :10]


def test_a_teacher_is_evaluated_in_and_out_of_distribution(data: Dataset, tmp_path: Path) -> None:
    path = analyse_teacher(
        Dim().eval(),
        data,
        tmp_path,
        inside=CenterCrop(8),
        outside=CropFlip(8, pad=1),
        mix=Mixup(classes=10, alpha=1.0),
        batch=91,
        batches=4,
    )
    images = (
        torch.stack(
            [CenterCrop(8)(data.train.inputs.image(row)) for row in range(len(data.train))]
        ).float()
        / 255
    )
    values, target = entropy(Dim()(images).numpy()), data.train.target.numpy()
    with np.load(path) as stored:
        assert stored["inside"][3] == pytest.approx(values[target == 3].mean())
        assert stored["outside"].shape == (10,)
        assert stored["inside_accuracy"] == pytest.approx(
            (Dim()(images).numpy().argmax(1) == target).mean()
        )
    with pytest.raises(ValueError, match="expected a teacher in evaluation mode"):
        analyse_teacher(Dim(), data, tmp_path, inside=CenterCrop(8), outside=CropFlip(8, pad=1))
    before = path.read_bytes()
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    state, numbers = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    analyse_teacher(
        Dim().eval(),
        data,
        tmp_path,
        inside=CenterCrop(8),
        outside=CropFlip(8, pad=1),
        mix=Mixup(classes=10, alpha=1.0),
        batch=91,
        batches=4,
    )
    with np.load(io.BytesIO(before)) as stored, np.load(path) as repeated:
        assert all(
            np.array_equal(stored[name], repeated[name], equal_nan=stored[name].dtype.kind == "f")
            for name in stored.files
        )
    assert torch.equal(torch.get_rng_state(), state)
    assert str(np.random.get_state()) == numbers  # noqa: NPY002
    assert [path.name for path in write_figures(tmp_path)] == ["uncertainty.svg"]


def journal(folder: Path, distances: list[float], *, epochs: int = 3) -> Path:
    (folder / "student").mkdir(parents=True)
    record = {
        "format": FORMAT,
        "command": "longtail train deit_lt",
        "recipe": "deit_lt",
        "data": {"source": "digits-lt", "name": "digits-lt", "protocol": "holdout", "hash": ""},
    }
    record |= {
        "keywords": {"epochs": epochs, "defer": 0.5},
        "seed": 0,
        "view_seed": 0,
        "tta": "none",
    }
    RunFolder(folder).recipe.write_text(json.dumps(record))
    lines: list[dict[str, Any]] = [{"kind": "steps", "epoch": 1, "step": 1, "notes/distance": 9.0}]
    for epoch, distance in enumerate(distances, start=1):
        lines.append(
            {"kind": "epoch", "epoch": epoch, "step": epoch, "notes/distance": distance}
            | ({"val/balanced": 0.1 * epoch} if epoch > 1 else {})
        )
    (folder / "student" / "journal.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    return folder


def test_one_process_of_several_analyses_as_many_images(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Dim):
        rows = 0

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            self.rows += len(image)
            return super().forward(image)

    for world_size in (1, 2):
        monkeypatch.setattr("longtail.processes.world_size", lambda size=world_size: size)
        teacher = Counting().eval()
        analyse_teacher(
            teacher,
            data,
            tmp_path,
            inside=CenterCrop(8),
            outside=CenterCrop(8),
            batch=32,
            batches=2,
        )
        assert teacher.rows == 2 * 64


def test_journals_become_curves(tmp_path: Path) -> None:
    flat, sharp = (
        journal(tmp_path / "flat", [0.1, 0.2, 0.4]),
        journal(tmp_path / "sharp", [0.1, 0.1, 0.1]),
    )
    numbers = curves(flat)
    assert numbers["notes/distance"].tolist() == [0.1, 0.2, 0.4]
    assert np.isnan(numbers["val/balanced"][0])
    assert numbers["val/balanced"][1:].tolist() == pytest.approx([0.2, 0.3])
    stopped = journal(tmp_path / "stopped", [0.1, 0.1], epochs=60)
    with np.load(
        analyse_training({"SAM": flat, "no SAM": sharp, "stopped": stopped}, tmp_path / "analysis")
    ) as stored:
        # Of all epochs, not of those that ran
        assert [float(stored[f"{number}/begin"]) for number in range(3)] == [1.5, 1.5, 30.0]
        assert stored["0/val/balanced"][1:].tolist() == pytest.approx([0.2, 0.3])
    for begin, marked in ((0.9, 2.7), (1.0, np.nan)):  # at the end nothing begins
        with np.load(analyse_training({"SAM": flat}, tmp_path / "analysis", begin=begin)) as stored:
            assert float(stored["0/begin"]) == pytest.approx(marked, nan_ok=True)
    written = write_figures(tmp_path / "analysis")
    assert [path.name for path in written] == ["experts.svg", "convergence.svg"]
    unjudged = journal(tmp_path / "unjudged", [0.1])
    analyse_training({"paper": unjudged}, tmp_path / "alone")
    assert [path.name for path in write_figures(tmp_path / "alone")] == ["experts.svg"]
    with pytest.raises(ValueError, match="expected a run with a stage 'student', got no journal"):
        curves(tmp_path)
