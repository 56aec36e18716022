from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pair_data import pair_features
from pair_files import write_list

import longtail
from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn.networks import build
from longtail.recipes.attribute_object import attribute_object
from longtail.recipes.cge import cge
from longtail.recipes.pairs import trained_body

QUICK: dict[str, Any] = {"epochs": 1, "batch": 16, "graph_width": 12}


def test_images_end_to_end_from_a_list(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    names = ["red", "blue", "wet", "old", "shirt", "shoe", "dog"]
    words.write_text("".join(f"{word} {i} {i % 3} 1\n" for i, word in enumerate(names)))
    result = longtail.train(
        "cge",
        write_list(tmp_path),
        tmp_path / "run",
        word_vectors=words,
        network="fast_cnn",
        batchformer="on",
        device="cpu",
        **QUICK,
    )
    assert result.row is not None
    assert result.row["headline"]["name"] == "auc"
    test = result.row["test"]
    assert test is not None
    assert test["scores"]["auc"] is not None
    with np.load(tmp_path / "run" / "model" / "pairs.npz") as stored:
        assert stored["attribute_names"].tolist() == ["blue", "old", "red", "wet"]
        assert stored["attribute_hidden"].shape == (4, 12)
    with pytest.raises(LongtailError, match="contains another run"):
        longtail.train("cge", tmp_path / "pairs.csv", tmp_path / "run", device="cpu", **QUICK)


def test_validation_without_unseen_pairs_cannot_choose_the_best_epoch(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    lines = [
        line
        for line in path.read_text().splitlines()
        if not (line.endswith("val") and "red,shirt" not in line)
    ]
    path.write_text("\n".join(lines))
    data = open_data(path)
    with pytest.raises(LongtailError, match="no unseen pair, so that AUC cannot choose"):
        cge(Run(tmp_path / "run", dry="rehearse"), data, **QUICK)
    cge(Run(tmp_path / "run", dry="rehearse"), data, keep="last", **QUICK)


def test_frozen_features_get_a_hidden_layer_and_pretrained_weights(tmp_path: Path) -> None:
    run = Run(tmp_path, dry="rehearse")
    data = pair_features()
    body, trained = trained_body(
        run, data, "vectors", "random", features="learned", hidden=6, size=data.size
    )
    assert (body.dim, trained) == (6, False)
    with pytest.raises(LongtailError, match="--features frozen needs a network that was trained"):
        trained_body(run, data, "fast_cnn", "random", features="frozen", hidden=6, size=8)


@pytest.mark.parametrize("recipe", [cge, attribute_object])
def test_keywords_without_effect_are_refused(tmp_path: Path, recipe: object) -> None:
    run = Run(tmp_path, dry="rehearse")
    run.changed = {"augment": "cutout"}
    with pytest.raises(LongtailError, match="--augment cutout has no effect with feature vectors"):
        recipe(run, pair_features(), network="vectors", augment="cutout")  # type: ignore[operator]
    with pytest.raises(LongtailError, match="--backbone-lr-scale has no effect on frozen"):
        recipe(  # type: ignore[operator]
            Run(tmp_path, dry="rehearse"), pair_features(), network="vectors", backbone_lr_scale=0.1
        )


def test_a_network_of_frozen_features_is_rebuilt_from_its_spec() -> None:
    spec = {"name": "vectors", "size": 32, "backbone": {"name": "fast_cnn", "size": 8, "width": 8}}
    network = build({"name": "embedded", "network": spec, "dims": [6]})
    assert network(torch.rand(2, 3, 8, 8)).shape == (2, 6)
