import csv
from pathlib import Path

import pytest
import torch
from pair_files import PAIRS, write_layout, write_list

from longtail.data.open import open_data
from longtail.errors import LongtailError
from longtail.testing import check_dataset

LISTED = sorted({" ".join(pair) for pairs in PAIRS.values() for pair in pairs})


def test_a_list_of_pairs(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    data = open_data(path)
    assert list(data.classes) == LISTED
    assert (data.counts > 0).sum() == 5
    assert [len(split) for split in (data.train, data.val, data.test)] == [20, 6, 8]
    names = [
        f"{data.categories['attribute'][a]} {data.categories['object'][o]}"
        for a, o in zip(
            data.class_attributes["attribute"], data.class_attributes["object"], strict=True
        )
    ]
    assert names == LISTED
    assert data.groups.members["unseen"] == tuple((data.counts == 0).nonzero().flatten().tolist())


def test_the_column_of_paths_may_be_called_image(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert (
        open_data(write_list(first)).hash
        == open_data(write_list(second, header="image,attribute,object,split")).hash
    )


def test_a_list_is_a_dataset(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    check_dataset(lambda: open_data(path))


@pytest.mark.parametrize("keywords", [{"spaced": True}, {}, {"flat": True}])
def test_the_layouts_of_mit_states_ut_zappos_and_c_gqa(
    tmp_path: Path, keywords: dict[str, bool]
) -> None:
    root = write_layout(tmp_path / "data", **keywords)
    data = open_data(root)
    assert list(data.classes) == LISTED
    assert [len(split) for split in (data.train, data.val, data.test)] == [20, 6, 8]
    assert (data.size, data.geometry, data.test.crop) == (224, "crop", 0.875)
    assert any("2 images without a split" in warning for warning in data.warnings)
    # the same images and labels as in a list, whatever the files are called
    listed = open_data(write_list(tmp_path / "list"), size=224)
    assert data.hash == listed.hash
    assert open_data(root / "compositional-split-natural").hash == data.hash


def test_the_field_knows_its_data_by_name(tmp_path: Path) -> None:
    root = write_layout(tmp_path)
    data = open_data("mit-states", root=root)
    assert (data.name, data.hash) == ("mit-states", open_data(root).hash)
    with pytest.raises(LongtailError, match=r"expected the files of c-gqa.*--root"):
        open_data("c-gqa", root=tmp_path / "images")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [row[:1] + row[2:] for row in rows], "missing attribute"),
        (lambda rows: [row[:2] + row[3:] for row in rows], "missing object"),
        (lambda rows: [row[1:] for row in rows], "missing path"),
        (lambda rows: [*rows, ["", "red", "shirt", "train"]], "line 36: expected a path"),
        (lambda rows: [*rows, [rows[1][0], "red", "shirt", "later"]], "line 36: expected a path"),
        (lambda rows: [*rows, ["gone.png", "red", "shirt", "train"]], "1 of 35 missing: gone.png"),
        (lambda rows: [*rows, [rows[1][0], "torn", "shirt", "test"]], "every attribute, got none"),
        (lambda rows: [*rows, [rows[1][0], "red", "hat", "val"]], "every object, got none of hat"),
        (lambda rows: [rows[0], *rows[21:]], "no training image in 14 rows"),
    ],
)
def test_lists_that_cannot_be_learned_are_refused(
    tmp_path: Path, change: object, message: str
) -> None:
    path = write_list(tmp_path)
    with path.open(newline="") as stream:
        rows = list(csv.reader(stream))
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(change(rows))  # type: ignore[operator]
    with pytest.raises(LongtailError, match=message):
        open_data(path)


def test_metadata_that_could_run_code_is_not_loaded(tmp_path: Path) -> None:
    root = write_layout(tmp_path)
    path = root / "metadata_compositional-split-natural.t7"
    torch.save([Path("anything")], path)
    with pytest.raises(LongtailError, match=r"could run code.*path,attribute,object,split"):
        open_data(root)
    torch.save([{"image": "1.png"}], path)
    with pytest.raises(LongtailError, match="rows with the texts image, attr, obj, set"):
        open_data(root)
    path.unlink()
    with pytest.raises(LongtailError, match=r"expected the metadata metadata_compositional"):
        open_data(root)


def test_lists_and_metadata_must_fit(tmp_path: Path) -> None:
    root = write_layout(tmp_path)
    path = root / "compositional-split-natural" / "val_pairs.txt"
    path.write_text("red shirt\nblue shoe\n")
    test = path.with_name("test_pairs.txt")
    test.write_text(test.read_text() + "wet shirt\n")
    with pytest.raises(LongtailError, match="to be of its listed pairs, got others: wet shirt"):
        open_data(root)
    path.write_text("red\n")
    with pytest.raises(LongtailError, match="line 1: expected `attribute object`"):
        open_data(root)
    path.unlink()
    with pytest.raises(LongtailError, match=r"got no val_pairs.txt"):
        open_data(root)
