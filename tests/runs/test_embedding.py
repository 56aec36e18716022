"""Features are computed once, resumed after a kill, and a run on them takes images again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from longtail.data.open import find, open_data
from longtail.data.readers.features import backbone_weights, write_features
from longtail.data.request import DataRequest
from longtail.engine.predicting import predictor
from longtail.errors import LongtailError
from longtail.nn import Embedded, build
from longtail.records.row import read_row
from longtail.runs import embed, embedding, evaluate, export, load, train
from longtail.runs.images import Preprocessing
from longtail.runs.model import read_backbone

QUICK: dict[str, Any] = {"epochs": 2, "batch": 16, "threads": 1, "device": "cpu"}
MODEL = "test_resnet"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 12 images that are not square, listed with a column of words."""
    root, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    lines = ["path,label,split,domain"]
    for number, name in enumerate(("red", "green", "blue")):
        for row in range(12):
            pixels = rng.integers(0, 120, (30, 40, 3), dtype=np.uint8)
            pixels[..., number] += 100
            Image.fromarray(pixels).save(root / f"{name}{row}.png")
            split, domain = "test" if row < 3 else "train", "art" if row % 2 else "photo"
            lines.append(f"{name}{row}.png,{name},{split},{domain}")
    (root / "images.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a timm model with its classifier, as a person has them in a file."""
    path = tmp_path_factory.mktemp("weights") / "test_resnet.safetensors"
    torch.manual_seed(1)
    save_file(timm.create_model(MODEL).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def written(images: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("features") / "features.npz"
    result = embed(
        images / "images.csv",
        f"timm:{MODEL}",
        out,
        weights=weights,
        pretraining="ImageNet-1k",
        size=32,
        device="cpu",
        threads=1,
    )
    assert (result.rows, result.dim, result.pretraining, result.fresh) == (
        *(36, 96, "ImageNet-1k"),
        True,
    )
    return out


def test_features_equal_those_of_the_network_on_each_image(
    images: Path, weights: Path, written: Path
) -> None:
    network = build({"name": f"timm:{MODEL}", "size": 32, "pretrained": str(weights)}).eval()
    with np.load(written) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for row in (0, 13, 35):
        square = Preprocessing(32, "pad", 32)(images / arrays["ids"][row])
        with torch.no_grad():
            expected = network(square[None].float() / 255)[0]
        torch.testing.assert_close(torch.from_numpy(arrays["features"][row]), expected)
    data, source = open_data(written), find(str(images / "images.csv"))
    assert data.classes == source.classes
    assert data.categories == {"domain": ("art", "photo")}
    assert (len(data.test), data.pretraining) == (9, "ImageNet-1k")
    by_id = dict(zip(source.splits["test"].ids, source.splits["test"].target, strict=True))
    assert data.test.target.tolist() == [by_id[name] for name in data.test.ids]


@pytest.fixture(scope="module")
def trained(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    train("cross_entropy", written, run, network="vectors", lr=0.5, **QUICK)
    return run


def test_a_run_on_features_takes_images_and_says_what_the_network_was_trained_on(
    images: Path, written: Path, trained: Path
) -> None:
    row = read_row(trained)
    assert row["pretraining"] == "ImageNet-1k"
    assert row["data"]["backbone"]["name"] == f"timm:{MODEL}"
    assert f"<dt>features of</dt><dd>timm:{MODEL}</dd>" in (trained / "report.html").read_text()
    loaded, data = load(trained, device="cpu"), open_data(written)
    features = data.test.inputs.vectors()
    assert features is not None
    by_features = loaded.logits(features)
    by_images = loaded.logits([images / name for name in data.test.ids])
    assert float((by_features - by_images).abs().max()) < 1e-5
    assert loaded.size == 32
    [part] = loaded.predict_files([images / data.test.ids[0]])
    assert part.predictions is not None
    assert evaluate(trained, device="cpu", threads=1)["test"] == read_row(trained)["test"]
    by_other = evaluate(trained, data=images / "images.csv", device="cpu", threads=1)
    assert by_other["test"] is not None
    assert read_row(trained)["test"] is not None
    assert by_other["test"]["top1"] == read_row(trained)["test"]["top1"]  # type: ignore[index]
    assert "also takes feature vectors (N, 96)" in (trained / "model" / "README.md").read_text()


def test_a_run_on_features_is_exported_for_images(trained: Path, tmp_path: Path) -> None:
    result = export(trained, "torch", out=tmp_path / "torch", images=8)
    assert result.agreement.source == "random images, as the data has features"
    assert result.agreement.difference < 1e-5
    timm_folder = export(trained, "timm", out=tmp_path / "timm", images=8).folder
    model = timm.create_model(f"local-dir:{timm_folder}", pretrained=True).eval()
    loaded, image = load(trained, device="cpu"), torch.rand(2, 3, 32, 32)
    config: Any = model.pretrained_cfg
    mean, std = (torch.tensor(config[key]).view(3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        torch.testing.assert_close(model((image - mean) / std), loaded.logits(image))


def test_features_of_a_run_are_those_before_its_head(images: Path, tmp_path: Path) -> None:
    train(
        "cross_entropy",
        images / "images.csv",
        tmp_path / "run",
        network="fast_cnn",
        size=16,
        **QUICK,
    )
    result = embed(
        images / "images.csv", tmp_path / "run", tmp_path / "f.npz", device="cpu", threads=1
    )
    assert result.pretraining == "images (cross_entropy, seed 0)"
    data, loaded = open_data(tmp_path / "f.npz"), load(tmp_path / "run", device="cpu")
    vectors = data.test.inputs.vectors()
    assert vectors is not None
    expected = loaded.features([images / name for name in data.test.ids])
    np.testing.assert_allclose(vectors.numpy(), expected, atol=1e-5)
    with pytest.raises(LongtailError, match="--size has no effect with the network of a run"):
        embed(images / "images.csv", tmp_path / "run", tmp_path / "g.npz", size=8)
    with pytest.raises(LongtailError, match=r"--geometry crop is not that of the run.*pad"):
        embed(images / "images.csv", tmp_path / "run", tmp_path / "g.npz", geometry="crop")


def test_a_kill_loses_at_most_one_chunk(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counting(stop: int | None) -> Callable[..., Any]:
        def counting_predictor(model: Any, machine: Any) -> Any:
            predict = predictor(model, machine)

            def counted(image: torch.Tensor) -> Any:
                if len(computed) == stop:
                    raise KeyboardInterrupt
                computed.append(len(image))
                return predict(image)

            return counted

        return counting_predictor

    def run(out: Path, stop: int | None) -> None:
        monkeypatch.setattr(embedding, "predictor", counting(stop))
        embed(
            *(images / "images.csv", "fast_cnn", out),
            weights="random",
            size=8,
            device="cpu",
            threads=1,
        )

    monkeypatch.setattr(embedding, "BATCH", 4)
    monkeypatch.setattr(embedding, "CHUNK", 2)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "f.npz", 6)
    assert not (tmp_path / "f.npz").exists()
    assert computed == [4, 4, 1, 4, 4, 4]  # 9 test rows, then three batches of training rows
    run(tmp_path / "f.npz", None)
    assert sum(computed) == 36 + 4  # one batch was not saved
    assert [path.name for path in tmp_path.iterdir()] == ["f.npz"]
    run(tmp_path / "without.npz", None)
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "without.npz").read_bytes()
    before = len(computed)
    run(tmp_path / "f.npz", None)
    assert len(computed) == before


def test_what_cannot_be_embedded_is_refused(images: Path, written: Path, tmp_path: Path) -> None:
    data, out = images / "images.csv", tmp_path / "f.npz"
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("--protocol has no effect", (data, "fast_cnn", out), {"protocol": "paper"}),
        ("--split-seed has no effect", (data, "fast_cnn", out), {"split_seed": 1}),
        ("unknown data flag 'margin'", (data, "fast_cnn", out), {"margin": 1}),
        (r"\.npz file: name it so", (data, "fast_cnn", tmp_path / "f.csv"), {}),
        ("has no pretrained weights", (data, "fast_cnn", out), {}),
        ("unknown network 'fast_cn'", (data, "fast_cn", out), {}),
        ("has feature vectors already", (written, "fast_cnn", out), {"weights": "random"}),
        ("finished run, got", (data, tmp_path, out), {}),
        (
            "of other images or of another network",
            (data, "fast_cnn", written),
            {"weights": "random"},
        ),
        (
            "a file of weights, got none",
            (data, f"timm:{MODEL}", out),
            {"weights": "no.safetensors"},
        ),
    ]
    for message, arguments, keywords in cases:
        with pytest.raises(LongtailError, match=message):
            embed(*arguments, **keywords)
    assert not out.exists()
    out.write_bytes(b"precious")
    with pytest.raises(LongtailError, match="choose another --out, or delete it"):
        embed(data, "fast_cnn", out, weights="random", size=8, device="cpu", threads=1)
    assert out.read_bytes() == b"precious"


def test_a_file_without_weights_or_with_code_is_not_joined(written: Path, tmp_path: Path) -> None:
    with np.load(written) as archive:
        arrays = {name: archive[name] for name in archive.files}
    del arrays["backbone.weights"]
    write_features(tmp_path / "bare.npz", arrays)
    bare = open_data(tmp_path / "bare.npz")
    assert bare.backbone is not None
    assert read_backbone(bare.backbone) is None
    train("cross_entropy", tmp_path / "bare.npz", tmp_path / "run", network="vectors", **QUICK)
    with pytest.raises(LongtailError, match="without their backbone"):
        load(tmp_path / "run", device="cpu").predict(torch.rand(1, 3, 32, 32))

    about = json.loads(str(arrays["backbone"]))
    arrays["backbone"] = np.array(json.dumps({**about, "network": {"name": "os.path:join"}}))
    arrays["backbone.weights"] = np.frombuffer(backbone_weights(written) or b"", np.uint8)
    write_features(tmp_path / "code.npz", arrays)
    code = open_data(tmp_path / "code.npz")
    assert code.backbone is not None
    assert read_backbone(code.backbone) is None

    arrays["backbone"] = np.array(json.dumps({**about, "network": {"name": "fast_cnn"}}))
    write_features(tmp_path / "other.npz", arrays)
    other = open_data(tmp_path / "other.npz")
    assert other.backbone is not None
    with pytest.raises(LongtailError, match="are not those of its network"):
        read_backbone(other.backbone)
    # A finished run is not lost: its network is saved without the backbone.
    train("cross_entropy", tmp_path / "other.npz", tmp_path / "kept", network="vectors", **QUICK)
    assert load(tmp_path / "kept", device="cpu").size == 96


def test_timm_has_no_layers_between_network_and_head(trained: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from longtail.nn import Classifier, Linear
    from longtail.runs.timm_model import write_timm

    loaded = load(trained, device="cpu")
    network: Any = loaded.network
    hidden = Embedded(network.network, [8])
    with pytest.raises(LongtailError, match="no layers between"):
        write_timm(tmp_path, replace(loaded, network=Classifier(hidden, Linear(8, 3))))


def test_domains_and_pairs_keep_their_columns_and_attributes(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"weights": "random", "size": 8, "device": "cpu", "threads": 1}
    embed("shapes-domains", "fast_cnn", tmp_path / "d.npz", test_domain="all", **keywords)
    images = find(DataRequest("shapes-domains", test_domain="photo"))
    vectors = find(DataRequest(str(tmp_path / "d.npz"), test_domain="photo"))
    assert vectors.categories == images.categories
    assert vectors.splits["test"].ids == images.splits["test"].ids
    embed("shapes-pairs", "fast_cnn", tmp_path / "p.npz", **keywords)
    pairs, features = open_data("shapes-pairs"), open_data(tmp_path / "p.npz")
    assert features.classes == pairs.classes
    assert features.categories == pairs.categories
    for name, values in pairs.class_attributes.items():
        assert torch.equal(features.class_attributes[name], values)
    assert features.test.ids == pairs.test.ids
    for name, values in pairs.test.columns.items():
        assert torch.equal(features.test.columns[name], values)
    with pytest.raises(LongtailError, match="--train-domain has no effect with --test-domain all"):
        embed(
            *("shapes-domains", "fast_cnn", tmp_path / "e.npz"),
            test_domain="all",
            train_domain="photo",
            **keywords,
        )
