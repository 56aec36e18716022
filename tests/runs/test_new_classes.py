"""A zero-shot model takes another bias and further classes, without training."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
import zero_shot_files
from typer.testing import CliRunner

from longtail.cli.main import app
from longtail.data.open import open_data
from longtail.errors import LongtailError
from longtail.nn import Classifier, Linear
from longtail.runs import load, train
from longtail.runs.new_classes import _add_pairs, add_classes, set_bias


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zero_shot_files.write(tmp_path_factory.mktemp("mat") / "all")


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train("eszsl", folder, out, threads=1)
    return out


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "pairs"
    train("compcos", "shapes-pairs", out, epochs=1, network="fast_cnn", threads=1)
    return out


def table(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def test_another_bias_replaces_that_of_the_run(run: Path, folder: Path) -> None:
    loaded, data = load(run, device="cpu"), open_data(folder)
    image = torch.rand(4, 12)
    unseen = data.counts == 0
    before = loaded.row["operating_point"]["bias"]
    shifted = set_bias(loaded, before + 2.0)
    expected = loaded.logits(image) + 2.0 * unseen
    assert torch.allclose(shifted.logits(image), expected, atol=1e-5)
    assert shifted.thresholds is None
    always = set_bias(loaded, 1e6).predict(image).labels
    assert {*always} <= {name for name, new in zip(data.classes, unseen, strict=True) if new}


def test_a_bias_needs_unseen_classes(tmp_path: Path) -> None:
    train("cross_entropy", "digits-lt", tmp_path / "run", epochs=1, threads=1)
    loaded = load(tmp_path / "run", device="cpu")
    with pytest.raises(LongtailError, match=r"every class of .* had training images"):
        set_bias(loaded, 1.0)
    new = table(tmp_path / "new.csv", ["class", "a"], [["x", 1]])
    with pytest.raises(LongtailError, match=r"cannot be given others.*eszsl.*compcos"):
        add_classes(loaded, new)
    new = table(tmp_path / "new.csv", ["attribute", "object"], [["x", "y"]])
    with pytest.raises(LongtailError, match="cannot compose any"):
        add_classes(loaded, new)


def test_a_class_that_is_described_like_another_has_its_logit(run: Path, tmp_path: Path) -> None:
    loaded = load(run, device="cpu")
    data = loaded.network.head.vectors  # type: ignore[union-attr]
    unseen = int(np.flatnonzero(np.array(loaded.row["data"]["counts_after"]) == 0)[0])
    vector = data[unseen].tolist()  # type: ignore[index]
    names = [f"n{i}" for i in range(len(vector))]
    new = table(tmp_path / "new.csv", ["class", *names], [["twin", *vector]])
    extended = add_classes(loaded, new)
    image = torch.rand(4, 12)
    logits = extended.logits(image)
    assert extended.classes == (*loaded.classes, "twin")
    assert torch.allclose(logits[:, :-1], loaded.logits(image), atol=1e-6)
    assert torch.allclose(logits[:, -1], logits[:, unseen], atol=1e-6)
    np.savez(tmp_path / "new.npz", **{"classes": ["twin"], "attribute.vector": [vector]})  # type: ignore[arg-type]
    assert torch.allclose(add_classes(loaded, tmp_path / "new.npz").logits(image), logits)
    repeated = set_bias(extended, 1e6).predict(image).labels
    assert {*repeated} <= {
        "twin",
        *(loaded.classes[i] for i in range(8) if loaded.row["data"]["counts_after"][i] == 0),
    }


def test_unusable_classes_are_refused(run: Path, tmp_path: Path) -> None:
    loaded = load(run, device="cpu")
    six = [f"n{i}" for i in range(6)]
    cases: list[tuple[str, list[str], list[list[object]]]] = [
        ("described by 6 numbers, got 2", ["class", "a", "b"], [["x", 1, 2]]),
        ("does not have yet", ["class", *six], [[loaded.classes[0], *range(6)]]),
        ("each once, got x", ["class", *six], [["x", *range(6)], ["x", *range(6)]]),
        ("expected numbers in all columns", ["class", *six], [["x", *"abcdef"]]),
        ("finite numbers", ["class", *six], [["x", *["nan"] * 6]]),
        ("expected the columns class and", ["name", *six], [["x", *range(6)]]),
        ("a line of 7 cells", ["class", *six], [["x", 1]]),
    ]
    for message, header, rows in cases:
        with pytest.raises(LongtailError, match=message):
            add_classes(loaded, table(tmp_path / "new.csv", header, rows))
    with pytest.raises(LongtailError, match="is no file"):
        add_classes(loaded, tmp_path / "nothing.csv")
    files: dict[str, tuple[bytes, str]] = {
        "empty.csv": (b"", "expected a header"),
        "latin.csv": ("class,é\nx,1\n".encode("latin-1"), "expected UTF-8"),
        "long.csv": (b"class,a\n" + b"x" * 140_000 + b",1\n", "field larger"),
        "no.npz": (b"nothing", "write an .npz with the arrays classes"),
    }
    for name, (content, message) in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LongtailError, match=message):
            add_classes(loaded, tmp_path / name)
    np.savez(tmp_path / "text.npz", **{"classes": ["a"], "attribute.vector": [["x"] * 6]})  # type: ignore[arg-type]
    with pytest.raises(LongtailError, match=r"of numbers, got .*<U1"):
        add_classes(loaded, tmp_path / "text.npz")


def test_a_pair_of_known_parts_is_composed(pairs: Path, tmp_path: Path) -> None:
    loaded = load(pairs, device="cpu")
    assert isinstance(loaded.network, Classifier)
    head = loaded.network.head
    assert isinstance(head, Linear)
    stored = pairs / "model" / "pairs.npz"
    known = [name.split(" ", 1) for name in loaded.classes]
    names, extended = _add_pairs(
        head,
        table(tmp_path / "a.csv", ["attribute", "object"], [[*pair] for pair in known]),
        stored,
    )
    assert tuple(names) == loaded.classes
    assert isinstance(extended, Linear)
    old, new = extended.weight.detach().chunk(2)
    assert torch.equal(old, head.weight)
    assert torch.allclose(new, head.weight, atol=1e-5), "composed anew, as in training"
    repeated = table(tmp_path / "a.csv", ["attribute", "object"], [[*known[0]]])
    with pytest.raises(LongtailError, match="does not have yet"):
        add_classes(loaded, repeated)
    unknown = table(tmp_path / "b.csv", ["attribute", "object"], [["nonsense", known[0][1]]])
    with pytest.raises(LongtailError, match="knows no attribute nonsense"):
        add_classes(loaded, unknown)


def test_the_command_line_takes_features_classes_and_a_bias(
    run: Path, folder: Path, tmp_path: Path
) -> None:
    vectors = open_data(folder).test.inputs.vectors()
    assert vectors is not None
    np.savez(
        tmp_path / "rows.npz", features=vectors.numpy(), ids=[f"r{i}" for i in range(len(vectors))]
    )
    new = table(
        tmp_path / "new.csv", ["class", *[f"n{i}" for i in range(6)]], [["new", *[0.5] * 6]]
    )
    words = ["predict", str(run), str(tmp_path / "rows.npz"), "--classes", str(new)]
    result = CliRunner().invoke(
        app,
        [
            *words,
            "--bias",
            "1000",
            "--top",
            "9",
            "--out",
            str(tmp_path / "out.csv"),
            "--threads",
            "1",
        ],
    )
    assert result.exit_code == 0, result.output
    with (tmp_path / "out.csv").open() as stream:
        rows = [*csv.DictReader(stream)]
    assert [row["path"] for row in rows] == [f"r{i}" for i in range(len(vectors))]
    assert all("new" in row.values() for row in rows)
    assert {row["class"] for row in rows} & {"new", *open_data(folder).classes}
