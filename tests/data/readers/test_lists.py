import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtail.data.loader import EvalLoader
from longtail.data.open import open_data, open_dataset
from longtail.data.readers import lists as module
from longtail.data.readers.lists import Published, image_list, published
from longtail.data.request import DataRequest

MakeFolder = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path, make_folder: MakeFolder) -> Path:
    return make_folder(tmp_path, {"my cats": 3, "dogs": 3})


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_text_lists_keep_integer_labels_and_spaces_in_paths(root: Path) -> None:
    source = image_list(
        write(root / "all.txt", "dogs/000.png 1", "", "my cats/001.png 0", "my cats/002.png\t0")
    )
    assert source.classes == ("0", "1")
    assert source.splits["train"].target.tolist() == [1, 0, 0]
    assert source.splits["train"].ids == ("dogs/000.png", "my cats/001.png", "my cats/002.png")


@pytest.mark.parametrize("head", ["Path,label", "label,other,path", "Image,Label", None])
def test_tables_with_and_without_header(root: Path, head: str | None) -> None:
    cells = {
        "path": ("dogs/000.png", "my cats/000.png"),
        "image": ("dogs/000.png", "my cats/000.png"),
        "label": ("dog", "cat"),
        "other": ("x", "y"),
    }
    names = [name.lower() for name in (head or "path,label").split(",")]
    lines = [",".join(cells[name][i] for name in names) for i in (0, 1)]
    source = image_list(write(root / "all.csv", *([head] if head else []), *lines))
    assert source.classes == ("cat", "dog")
    assert source.splits["train"].target.tolist() == [1, 0]


def test_a_table_may_name_splits(root: Path) -> None:
    lines = (
        "path,label,split",
        "dogs/000.png,0,train",
        "dogs/001.png,0,valid",
        "my cats/000.png,1,",
        "my cats/001.png,1,test",
    )
    source = image_list(write(root / "all.csv", *lines))
    assert {split: rows.ids for split, rows in source.splits.items()} == {
        "train": ("dogs/000.png", "my cats/000.png"),
        "val": ("dogs/001.png",),
        "test": ("my cats/001.png",),
    }


def test_lists_beside_a_training_list_are_its_other_splits(root: Path) -> None:
    write(root / "pets_test.txt", "dogs/001.png 1")
    source = image_list(write(root / "pets_train.txt", "dogs/000.png 1", "my cats/000.png 0"))
    assert {split: len(rows) for split, rows in source.splits.items()} == {"train": 2, "test": 1}
    assert source.warnings == ("the test split was read from pets_test.txt.",)


def test_a_file_of_classes_names_numbers_and_orders_words(root: Path) -> None:
    write(root / "classes.txt", "dog", "cat")
    assert image_list(write(root / "a.txt", "dogs/000.png 0", "my cats/000.png 1")).classes == (
        "dog",
        "cat",
    )
    source = image_list(write(root / "a.csv", "dogs/000.png,dog", "my cats/000.png,cat"))
    assert (source.classes, source.splits["train"].target.tolist()) == (("dog", "cat"), [0, 1])
    with pytest.raises(ValueError, match=r"labels are missing from classes.txt: wolf"):
        image_list(write(root / "b.csv", "dogs/000.png,wolf"))
    with pytest.raises(ValueError, match="expected labels 0 to 1"):
        image_list(write(root / "b.txt", "dogs/000.png 2"))
    write(root / "classes.txt", "dog", "cat", "dog")
    with pytest.raises(ValueError, match=r"classes.txt must name each class once, got 'dog' twice"):
        image_list(root / "a.csv")
    write(root / "classes.txt", "dog", "cat")
    with pytest.raises(
        ValueError, match="expected a training image in every class, got none in cat"
    ):
        open_data(str(write(root / "c.txt", "dogs/000.png 0")))


def test_missing_files_are_counted_and_the_first_shown(root: Path, tmp_path: Path) -> None:
    lines = [f"gone/{i}.png 0" for i in range(9)]
    with pytest.raises(
        ValueError, match=r"got 9 of 10 missing: gone/0.png, gone/1.png, .* and 4 more.*--root"
    ):
        image_list(write(root / "all.txt", "dogs/000.png 0", *lines))
    elsewhere = tmp_path / "lists"
    elsewhere.mkdir()
    path = write(elsewhere / "all.txt", "dogs/000.png 0", "my cats/000.png 1")
    with pytest.raises(ValueError, match="2 of 2 missing"):
        image_list(path)
    assert len(image_list(path, root=root).splits["train"]) == 2


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("a.txt", "dogs/000.png", r"a.txt, line 2: expected `path label`, got 'dogs/000.png'"),
        ("a.csv", "dogs/000.png", "a.csv, line 2: expected path,label"),
        ("a.csv", "dogs/000.png,1,tset", "a.csv, line 2: expected path,label"),
        ("a.txt", "dogs/000.png -1", "expected labels of 0 or more, got -1"),
        ("a.txt", "dogs/000.png 7", "without gaps"),
    ],
)
def test_lines_that_say_nothing_are_refused(root: Path, name: str, line: str, message: str) -> None:
    first = "my cats/000.png,0" if name.endswith("csv") else "my cats/000.png 0"
    with pytest.raises(ValueError, match=message):
        image_list(write(root / name, first, line))


@pytest.mark.parametrize("label", ["20000000", "999999999999", "1" + 20 * "0", 5000 * "9"])
def test_labels_that_are_ids_are_names(root: Path, label: str) -> None:
    source = image_list(write(root / "a.txt", f"dogs/000.png {label}", "my cats/000.png 3"))
    assert source.classes == tuple(sorted(("3", label)))
    assert [source.classes[target] for target in source.splits["train"].target] == [label, "3"]


def test_an_empty_list_is_refused_and_zero_padded_labels_are_words(root: Path) -> None:
    with pytest.raises(ValueError, match="no training image in 0 lines"):
        image_list(write(root / "a.csv"))
    assert image_list(write(root / "b.csv", "dogs/000.png,01", "my cats/000.png,02")).classes == (
        "01",
        "02",
    )


def test_further_columns_of_a_csv_are_columns_of_the_data(root: Path) -> None:
    lines = [
        f"{place}/{row:03}.png,{label},{domain},{row}.5,{row}"
        for place, label, domain in (("dogs", "dog", "photo"), ("my cats", "cat", "art"))
        for row in range(3)
    ]
    path = write(root / "c.csv", "path,label,domain,age,index", *lines)
    data = open_data(str(path), protocol="paper")
    assert data.categories == {"domain": ("art", "photo")}
    assert data.train.columns["domain"].tolist() == [int(text < "e") for text in data.train.ids]
    assert data.train.columns["age"].tolist() == [int(text[-5]) + 0.5 for text in data.train.ids]
    assert {*data.train.columns} == {"domain", "age"}
    assert "dropped: index" in data.warnings[0]
    assert data.groups.rule == "none: all classes alike"
    [batch] = EvalLoader(data.train, size=8, batch=9).epoch()
    assert torch.equal(batch["domain"], data.train.columns["domain"])  # type: ignore[typeddict-item]
    bare = write(root / "d.csv", "path,label", *(",".join(text.split(",")[:2]) for text in lines))
    plain = open_data(str(bare), protocol="paper")
    assert plain.hash != data.hash
    assert plain.groups.rule != data.groups.rule
    legacy = open_dataset(DataRequest(str(path), protocol="paper"), legacy=True)
    assert (legacy.hash, legacy.groups) == (plain.hash, plain.groups), "as of earlier versions"


def test_published_lists(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PUBLISHED, "imagenet-lt", Published("t.txt", "v.txt", "e.txt", 2, 4))
    with pytest.raises(
        ValueError,
        match=(
            r"expected the list files t.txt, v.txt, e.txt of imagenet-lt in .*, got no t.txt,"
            r" v.txt, e.txt"
        ),
    ):
        published("imagenet-lt", root=root)
    write(root / "t.txt", "dogs/000.png 1", "my cats/000.png 0", "my cats/001.png 0")
    write(root / "v.txt", "dogs/001.png 1")
    write(root / "e.txt", "dogs/002.png 1")
    data = open_data("imagenet-lt", root=root)
    assert (data.size, data.groups.rule, data.name) == (
        224,
        "threshold: many > 100, few < 20",
        "imagenet-lt",
    )
    assert (len(data.train), len(data.val), len(data.test)) == (3, 1, 1)
    assert data.classes == ("my cats", "dogs")  # the folders', as timm names ImageNet's classes
    assert data.warnings[0] == "imagenet-lt has 4 training images, but t.txt gives 3."
    assert data.geometry == "crop"
    assert open_data("imagenet-lt", root=root, geometry="pad").test.crop == 1.0
    assert [
        open_data("imagenet-lt", root=root, size=size).test.crop for size in (None, 128, 384)
    ] == [0.875, 0.875, 1.0]
    write(root / "e.txt", "my cats/002.png 1")
    assert published("imagenet-lt", root=root).classes == ("0", "1"), "two folders of one class"
    write(root / "classes.txt", "cat", "dog")
    assert published("imagenet-lt", root=root).classes == ("cat", "dog")
    write(root / "classes.txt", "cat")
    with pytest.raises(ValueError, match=r"expected labels 0 to 0 \(1 classes are named\), got 1"):
        published("imagenet-lt", root=root)  # and no class without a name
    write(root / "classes.txt", "cat", "dog")
    write(root / "e.txt", "dogs/002.png 2")
    with pytest.raises(ValueError, match="expected labels 0 to 1"):
        published("imagenet-lt", root=root)


def test_balanced_imagenet_has_the_first_images_of_each_folder_by_their_hashes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = Published("t.txt", "v.txt", "e.txt", 2, 4, balanced=2)
    monkeypatch.setitem(module.PUBLISHED, "imagenet-bal", lists)
    monkeypatch.setitem(module.PUBLISHED, "imagenet-bal-160", replace(lists, balanced=3))
    write(root / "t.txt", "dogs/000.png 1", "my cats/000.png 0")
    write(root / "v.txt", "dogs/001.png 1")
    write(root / "e.txt", "my cats/002.png 0")
    for folder, number in (("dogs", 3), ("dogs", 4), ("my cats", 3), ("my cats", 4)):
        (root / folder / f"{number:03}.png").write_bytes((root / folder / "000.png").read_bytes())

    def chosen(name: str) -> set[str]:
        data = open_data(name, root=root, on_bad_image="refuse")
        assert data.classes == ("my cats", "dogs")
        assert (len(data.val), len(data.test)) == (1, 1)
        return set(data.train.ids)

    two = set()
    for folder, numbers in (("dogs", (0, 2, 3, 4)), ("my cats", (0, 1, 3, 4))):
        digests = {hashlib.sha256(f"0 {n:03}.png".encode()).hexdigest(): n for n in numbers}
        two |= {f"{folder}/{digests[digest]:03}.png" for digest in sorted(digests)[:2]}
    assert chosen("imagenet-bal") == two
    assert two < chosen("imagenet-bal-160")
    monkeypatch.setitem(module.PUBLISHED, "imagenet-bal", replace(lists, balanced=5))
    with pytest.raises(ValueError, match=r"at least 5 training images in .*, got 4"):
        published("imagenet-bal", root=root)
    write(root / "t.txt", "dogs/000.png 1", "my cats/000.png 1")
    with pytest.raises(ValueError, match=r"images of class 1 in one folder, got dogs and my cats"):
        published("imagenet-bal", root=root)


def test_a_byte_order_mark_is_no_part_of_a_name(root: Path) -> None:
    path = write(root / "list.txt", "my cats/000.png 0", "dogs/000.png 1")
    plain = image_list(path, root=root)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    (root / "classes.txt").write_text("cat\ndog\n", encoding="utf-8-sig")
    marked = image_list(path, root=root)
    assert marked.splits["train"].ids == plain.splits["train"].ids
    assert marked.classes == ("cat", "dog")
