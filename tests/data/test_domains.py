from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.data.domains import leave_domain_out
from longtail.data.open import domain_names, open_data
from longtail.data.readers.domains import domain_tree
from longtail.data.request import DataRequest
from longtail.errors import LongtailError
from longtail.testing import check_dataset

MakeFolder = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path, make_folder: MakeFolder) -> Path:
    return make_folder(
        tmp_path / "pets",
        {f"{domain}/{name}": 6 for domain in ("art", "photo", "sketch") for name in "ab"},
        side=6,
    )


def test_the_test_domain_is_the_test_set(tree: Path) -> None:
    data = open_data(tree, test_domain="photo")
    check_dataset(lambda: open_data(tree, test_domain="photo"))
    assert {name.partition("/")[0] for name in data.test.ids} == {"photo"}
    assert {name.partition("/")[0] for name in data.train.ids} == {"art", "sketch"}
    assert {name.partition("/")[0] for name in data.val.ids} == {"art", "sketch"}
    assert data.groups.rule == "none: all classes alike"
    paper = open_data(tree, test_domain="photo", protocol="paper")
    assert (len(paper.train), len(paper.val), len(paper.test)) == (24, 0, 12)


def test_training_domains_may_be_named(tree: Path) -> None:
    data = open_data(tree, test_domain="photo", train_domain="sketch")
    assert data.categories["domain"] == ("photo", "sketch")
    assert {name.partition("/")[0] for name in data.train.ids} == {"sketch"}
    both = open_data(tree, test_domain="photo", train_domain="sketch, art")
    assert both.hash == open_data(tree, test_domain="photo").hash != data.hash


def test_classes_of_domains_that_are_not_used_do_not_count(
    tree: Path, make_folder: MakeFolder
) -> None:
    make_folder(tree, {"unlabelled/trunk00": 3})
    with pytest.raises(LongtailError, match="unlabelled has classes without training images"):
        open_data(tree, test_domain="unlabelled")
    # As in VisDA-2017, whose test images are in folders trunk00, ... without their classes
    with pytest.raises(LongtailError, match="classes of photo in every training domain, got none"):
        open_data(tree, test_domain="photo")
    data = open_data(tree, test_domain="photo", train_domain="art,sketch")
    assert data.classes == ("a", "b")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"test_domain": "sketsch"}, "unknown domain of pets 'sketsch': did you mean sketch"),
        ({"test_domain": "all"}, "a run has one test domain: .* --set test_domain=all"),
        ({"test_domain": "art", "train_domain": "foto"}, "unknown domain of pets 'foto'"),
        (
            {"test_domain": "art", "train_domain": "art,photo"},
            "--train-domain names the test domain art",
        ),
        ({"train_domain": "art"}, "--train-domain needs --test-domain"),
    ],
)
def test_domains_that_cannot_be_used(tree: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        open_data(tree, **flags)


def test_one_domain_only(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {"art/a": 2, "art/b": 2})
    with pytest.raises(LongtailError, match="expected at least two domains, got only art"):
        open_data(tmp_path, test_domain="art")


def test_data_without_domains(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="--test-domain needs data with domains, and digits-lt"):
        open_data("digits-lt", test_domain="art")


def table(path: Path, rows: list[tuple[str, ...]]) -> Path:
    path.write_text(
        "\n".join(",".join(row) for row in [("path", "label", "domain", "split"), *rows])
    )
    return path


def rows_of(tree: Path) -> list[tuple[str, ...]]:
    files = sorted(file.relative_to(tree) for file in tree.rglob("*.png"))
    return [(file.as_posix(), file.parts[1], file.parts[0], "train") for file in files]


def test_a_table_with_a_column_domain(tree: Path) -> None:
    path = table(tree.parent / "pets.csv", rows_of(tree))
    data = open_data(path, root=tree, test_domain="sketch")
    assert data.hash == open_data(tree, test_domain="sketch").hash
    assert domain_names(DataRequest(str(path), root=str(tree))) == ("art", "photo", "sketch")


def test_splits_of_a_table(tree: Path) -> None:
    """All of the target is tested; validation of the sources is kept, their test is left out."""
    rows = rows_of(tree)
    split = {
        row[0]: ("train", "train", "train", "val", "test", "test")[n % 6]
        for n, row in enumerate(rows)
    }
    path = table(tree.parent / "pets.csv", [(*row[:3], split[row[0]]) for row in rows])
    data = open_data(path, root=tree, test_domain="sketch")
    assert sorted(data.test.ids) == [row[0] for row in rows if row[2] == "sketch"]
    assert (len(data.train), len(data.val)) == (12, 4)
    assert data.warnings == (
        "8 images of art, photo are in the test split and were left out: the test images are those"
        " of sketch.",
    )


def test_a_domain_without_training_images(tree: Path) -> None:
    rows = [(*row[:3], "test" if row[2] == "art" else "train") for row in rows_of(tree)]
    path = table(tree.parent / "pets.csv", rows)
    with pytest.raises(LongtailError, match="training images in every domain, got none in art"):
        open_data(path, root=tree, test_domain="sketch")
    assert len(open_data(path, root=tree, test_domain="art").test) == 12


def test_domains_may_be_numbers(tree: Path) -> None:
    numbers = {"art": "0", "photo": "15", "sketch": "7.5"}
    rows = [(*row[:2], numbers[row[2]], "") for row in rows_of(tree)]
    data = open_data(table(tree.parent / "pets.csv", rows), root=tree, test_domain="15")
    assert data.categories["domain"] == ("0", "7.5", "15")
    assert data.test.columns["domain"].unique().tolist() == [2]
    rows[0] = (*rows[0][:2], "", "")
    with pytest.raises(LongtailError, match="expected a domain for every image, got empty cells"):
        open_data(table(tree.parent / "pets.csv", rows), root=tree, test_domain="15")


def test_images_without_a_domain_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    arrays: dict[str, Any] = {
        "features": np.ones((8, 3), dtype=np.float32),
        "target": np.arange(8) % 2,
        "column.domain": np.array(["art", "art", "photo", "photo", "", "", "art", "art"]),
    }
    np.savez(path, **arrays)
    with pytest.raises(LongtailError, match="a domain for every image, got empty cells"):
        open_data(path, test_domain="art")


@pytest.mark.parametrize("text", [True, False])
def test_features_with_a_column_domain(tmp_path: Path, text: bool) -> None:
    domain = np.repeat(["a", "b", "c"] if text else [0, 1, 2], 10)
    arrays: dict[str, Any] = {"features": np.random.default_rng(0).normal(size=(30, 4))}
    arrays |= {"target": np.arange(30) % 2, "column.domain": domain}
    arrays["split"] = np.where(np.arange(30) % 5, "train", "test")
    np.savez(tmp_path / "f.npz", **arrays)
    data = open_data(tmp_path / "f.npz", test_domain="c" if text else "2")
    assert (len(data.test), len(data.train) + len(data.val)) == (10, 16)


def test_classes_with_attributes_need_no_training_image(tree: Path) -> None:
    source = domain_tree(tree)
    rows = source.splits["train"]
    unseen = rows.take(np.flatnonzero((rows.target == 0) | (rows.columns["domain"] == 1)))
    source = replace(source, splits={"train": unseen}, class_attributes={"v": np.eye(2)})
    assert leave_domain_out(source, "photo").classes == ("a", "b")


def test_a_tree_of_domains_without_the_flag_is_warned_about(
    tree: Path, tmp_path: Path, make_folder: MakeFolder
) -> None:
    assert open_data(tree).warnings == (
        "the folders art, photo, sketch are the classes, but most have the same folders a, b: if"
        " they are domains, pass --test-domain sketch.",
    )
    office = make_folder(tmp_path / "o", {f"{d}/images/{c}": 1 for d in ("x", "y") for c in "ab"})
    assert "most have the same folders a, b" in open_data(office).warnings[0]
    uneven = make_folder(tmp_path / "u", {"x/a": 1, "x/b": 1, "x/c": 1, "y/a": 1, "y/b": 1})
    assert "most have the same folders a, b: if" in open_data(uneven).warnings[0]
    for other in (
        {"x/deep": 2, "y/deep": 2},  # one folder
        {"x/day": 2, "x/night": 2, "y/day": 2},  # not the same
        {"x/day": 2, "x/night": 2, "y/day": 2, "y/night": 2, "y": 1},  # images of the class
        {f"{place}/{name}": 2 for place, names in (("x", "abcd"), ("y", "abef")) for name in names},
        {"train/x/day": 2, "train/y/day": 2, "test/x/night": 1},
    ):
        path = make_folder(tmp_path / f"{len(list(tmp_path.iterdir()))}", other)
        assert not any("--test-domain" in warning for warning in open_data(path).warnings)
