from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from longtail.data.open import domain_names, open_data
from longtail.data.readers.domains import domain_tree, domains
from longtail.data.request import DataRequest
from longtail.errors import LongtailError

MakeFolder = Callable[..., Path]
PACS = ("art_painting", "cartoon", "photo", "sketch")

TREES: Mapping[str, tuple[dict[str, int], str, tuple[str, ...], tuple[str, ...]]] = {
    "PACS": (
        {f"{domain}/{name}": 5 for domain in PACS for name in ("dog", "house", "person")},
        "sketch",
        ("art_painting", "cartoon", "photo", "sketch"),
        ("dog", "house", "person"),
    ),
    "VLCS": (
        {
            f"{domain}/{name}": 5
            for domain in ("Caltech101", "LabelMe", "SUN09", "VOC2007")
            for name in ("bird", "car")
        },
        "SUN09",
        ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
        ("bird", "car"),
    ),
    "VLCS of JiGen": (  # `full` has the images of the three splits again
        {
            f"{domain}/{split}/{name}": 5
            for domain in ("CALTECH", "LABELME", "PASCAL", "SUN")
            for split in ("full", "train", "crossval", "test")
            for name in ("0", "1")
        },
        "SUN",
        ("CALTECH", "LABELME", "PASCAL", "SUN"),
        ("0", "1"),
    ),
    "OfficeHome": (
        {
            f"{domain}/{name}": 5
            for domain in ("Art", "Clipart", "Product", "Real World")
            for name in ("Alarm_Clock", "Backpack")
        },
        "Real World",
        ("Art", "Clipart", "Product", "Real World"),
        ("Alarm_Clock", "Backpack"),
    ),
    "TerraIncognita": (
        {
            f"{domain}/{name}": 5
            for domain in ("location_38", "location_43", "location_46", "location_100")
            for name in ("bird", "bobcat")
        },
        "location_100",
        ("location_100", "location_38", "location_43", "location_46"),
        ("bird", "bobcat"),
    ),
    "VisDA-2017": (  # one of its classes is called train
        {
            f"{domain}/{name}": 5
            for domain in ("train", "validation")
            for name in ("aeroplane", "train", "truck")
        },
        "validation",
        ("train", "validation"),
        ("aeroplane", "train", "truck"),
    ),
    "Office-31": (
        {
            f"{domain}/images/{name}": 5
            for domain in ("amazon", "dslr", "webcam")
            for name in ("back_pack", "bike")
        },
        "webcam",
        ("amazon", "dslr", "webcam"),
        ("back_pack", "bike"),
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_usual_layouts(tmp_path: Path, make_folder: MakeFolder, name: str) -> None:
    counts, target, names, classes = TREES[name]
    path = make_folder(tmp_path / "images", counts, side=6)
    (path / "ImageInfo.csv").write_text("beside the folders")
    data = open_data(path, test_domain=target)
    assert (data.test_domain, data.categories["domain"], data.classes) == (target, names, classes)
    assert {data.test.columns["domain"][row].item() for row in range(len(data.test))} == {
        names.index(target)
    }
    used = [folder for folder in counts if name != "VLCS of JiGen" or "/full/" in folder]
    in_target = [folder for folder in used if folder.startswith(f"{target}/")]
    assert len(data.test) == 5 * len(in_target)
    # One of five images of each class and training domain is for validation
    assert len(data.val) == len(used) - len(in_target)
    held_out = zip(data.val.columns["domain"].tolist(), data.val.target.tolist(), strict=True)
    assert {*Counter(held_out).values()} == {1}
    assert len(data.train) == 4 * (len(used) - len(in_target))
    assert domain_names(DataRequest(str(path))) == names


def test_splits_inside_a_domain_are_its_images(tmp_path: Path, make_folder: MakeFolder) -> None:
    splits = {f"{domain}/{split}/a": 2 for domain in "xy" for split in ("train", "val", "test")}
    source = domain_tree(make_folder(tmp_path, splits))
    assert (source.classes, len(source.splits["train"])) == (("a",), 12)


def test_a_class_folder_with_folders_is_not_passed_through(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(tmp_path, {"x/a/deep": 2, "x/b/deep": 1, "y/a": 3, "y/b/deep": 1})
    assert domain_tree(tmp_path).classes == ("a", "b")


def test_what_is_no_domain_is_left_out_and_an_empty_one_refused(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(tmp_path, {"x/a": 1, "y/a": 1})
    (tmp_path / "image_list").mkdir()
    (tmp_path / "image_list" / "x.txt").write_text("x/a/000.png 0\n")
    (tmp_path / "x" / "a" / "notes.md").write_text("x")
    source = domains(tmp_path)
    assert source.categories["domain"] == ("x", "y")
    assert source.warnings == (
        "folders without class folders were left out: image_list.",
        "1 files are not images by their suffix and were left out: x/a/notes.md.",
    )
    (tmp_path / "z" / "a").mkdir(parents=True)
    with pytest.raises(LongtailError, match="expected domain/class/image, got no image in z"):
        domains(tmp_path)


def lists(path: Path, folder: str, *, first: int = 0, kfold: bool = False) -> Path:
    """Write a list per domain for a tree of images, or several as PACS was released."""
    place = path / folder
    place.mkdir()
    for domain in sorted(entry.name for entry in path.iterdir() if entry.name != folder):
        classes = sorted(entry.name for entry in (path / domain).iterdir())
        lines = [
            f"{domain}/{name}/{file.name} {number + first}"
            for number, name in enumerate(classes)
            for file in sorted((path / domain / name).iterdir())
        ]
        if kfold:
            (place / f"{domain}_train_kfold.txt").write_text("\n".join(lines[::2]))
            (place / f"{domain}_crossval_kfold.txt").write_text("\n".join(lines[1::2]))
            (place / f"{domain}_test_kfold.txt").write_text("\n".join(lines))
        else:
            (place / f"{domain}.txt").write_text("\n".join(lines))
    return place


def test_a_list_per_domain(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {f"{domain}/{name}": 5 for domain in PACS for name in ("dog", "house")})
    tree = open_data(tmp_path, test_domain="photo")
    place = lists(tmp_path, "image_list")
    data = open_data(place, test_domain="photo")
    assert (data.classes, data.categories["domain"]) == (("dog", "house"), PACS)
    assert data.hash == tree.hash
    elsewhere = tmp_path.parent / f"{tmp_path.name}-lists"
    place.rename(elsewhere)
    assert open_data(elsewhere, root=tmp_path, test_domain="photo").hash == tree.hash
    moved = DataRequest(str(elsewhere), root="old", test_domain="photo").with_root(tmp_path)
    assert moved == DataRequest(str(elsewhere), root=str(tmp_path), test_domain="photo")
    with pytest.raises(LongtailError, match="expected every listed image under"):
        open_data(elsewhere, test_domain="photo")


def test_lists_of_pacs_as_released(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {f"{domain}/{name}": 6 for domain in PACS for name in ("dog", "house")})
    tree = open_data(tmp_path, test_domain="photo")
    data = open_data(lists(tmp_path, "labels", first=1, kfold=True), test_domain="photo")
    assert (data.classes, data.hash) == (("dog", "house"), tree.hash)


def test_a_folder_without_domains_or_lists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="expected folders domain/class/image, or a list"):
        domains(tmp_path)
