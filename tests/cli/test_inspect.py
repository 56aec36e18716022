"""The doctor of data: what is printed, written and refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pair_files import write_list
from PIL import Image

from longtail.cli import main
from longtail.cli.inspect import advice
from longtail.recipes import RECIPES


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


Make = Callable[[dict[str, int]], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Class folders of different images."""

    def folder(counts: dict[str, int]) -> Path:
        rng = np.random.default_rng(0)
        for name, count in counts.items():
            (tmp_path / "data" / name).mkdir(parents=True)
            for i in range(count):
                small = Image.fromarray(rng.integers(256, size=(9, 9, 3), dtype=np.uint8))
                small.resize((36, 36), Image.Resampling.BICUBIC).save(
                    tmp_path / "data" / name / f"{i:03}.png"
                )
        return tmp_path / "data"

    return folder


def test_digits_have_nothing_to_mend(longtail: Any) -> None:
    result = longtail("inspect", "digits-lt")
    assert result.code == 0, result.err
    for words in (
        *(
            "█",
            "imbalance 20.0",
            "Gini 0.47",
            "entropy of 6.9 equal classes",
            "effective numbers (beta 0.9999): 119 to 6.0",
        ),
        *(
            "many 3 classes",
            "±0.13",
            "balanced accuracy ±4.2",
            "all 8 x 8",
            "duplicates: none found",
        ),
        (
            "next: longtail train auto --data digits-lt\n  or: longtail train balanced_softmax"
            " --data digits-lt\n"
        ),
    ):
        assert words in result.out


def test_all_problems_are_listed_and_written(longtail: Any, make: Make, tmp_path: Path) -> None:
    path = make({"cats & dogs": 60, "b": 12, "c": 4, "d": 2})
    (path / "d" / "000.png").write_bytes(b"no image")
    (path / "d" / "001.png").write_bytes(b"")
    shutil.copy(path / "cats & dogs" / "000.png", path / "b" / "copy.png")
    Image.open(path / "b" / "001.png").save(path / "b" / "again.jpg", quality=70)
    result = longtail(
        "inspect", path, "--json", tmp_path / "out" / "x.json", "--html", tmp_path / "x.html"
    )
    assert result.code == 0, result.err
    for words in (
        *(
            "1 exact and 1 near groups",
            "exact [b / cats & dogs]",
            "b/001.png",
            "b/again.jpg",
            "1 under two labels",
        ),
        *(
            "unreadable: 2 images",
            "  d/000.png: not an image of a known kind",
            "No training image of d can be read",
        ),
        *(
            "1 image is present under two labels",
            "have too few test images to be evaluated one by one",
            "1 class is without a test image (c)",
        ),
    ):
        assert words in result.out
    assert f"longtail train auto --data {path} --on-bad-image skip" in result.out
    written = json.loads((tmp_path / "out" / "x.json").read_text(encoding="utf-8"))
    assert written["format"] == 1
    assert [image["image"] for image in written["unreadable"]] == ["d/000.png", "d/001.png"]
    assert [one["image"] for one in written["duplicates"]["groups"][0]["images"]] != []
    assert written["files"]["images"] == 78
    assert [row["name"] for row in written["classes"]] == ["b", "c", "cats & dogs"]
    assert sum(row["source"] for row in written["classes"]) == 78
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "cats &amp; dogs" in page
    assert page.count("data:image/") == 8  # two pairs of copies, four images of the smallest class


def test_quick_counts_without_opening(longtail: Any, make: Make, tmp_path: Path) -> None:
    path = make({"a": 30, "b": 6})
    complete = longtail("inspect", path).out
    for file in path.rglob("*.png"):
        file.write_bytes(b"")
    result = longtail(
        "inspect", path, "--quick", "--json", tmp_path / "x.json", "--html", tmp_path / "x.html"
    )
    assert result.code == 0, result.err
    bars = [line for line in complete.splitlines() if "█" in line]
    assert bars == [line for line in result.out.splitlines() if "█" in line]
    assert "no image was read" in result.out
    written = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert (written["hash"], written["files"], written["duplicates"]) == (None, None, None)
    assert "None" not in (tmp_path / "x.html").read_text(encoding="utf-8").partition("<body>")[2]


def test_the_commands_repeat_the_request_and_are_known(longtail: Any, make: Make) -> None:
    result = longtail(
        "inspect", "digits-lt", "--imbalance", 10, "--split-seed", 3, "--protocol", "paper"
    )
    commands = re.findall(r"(?:next|  or): longtail (\S+) (\S+)(.*)", result.out)
    assert [verb for verb, *_ in commands] == ["train", "train", "inspect"]
    for verb, word, rest in commands:
        assert (
            rest.startswith(" --data digits-lt --imbalance 10.0 --protocol paper --split-seed 3")
            or verb == "inspect"
        )
        assert verb == "inspect" or word == "auto" or word in RECIPES
    even = longtail("inspect", "digits-lt", "--imbalance", 1)
    assert "train cross_entropy" in even.out
    assert "plain training is enough" in even.out
    spaced = make({"a": 9, "b": 6}).rename(make({}).parent / "my data")
    assert f"--data '{spaced}'" in longtail("inspect", spaced).out


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "expected a folder of class folders"),
        ({"a": 3}, "expected at least two class folders"),
        ({"a": 3, "b": 0}, "got none in b"),
    ],
)
def test_what_is_no_data_is_refused(
    longtail: Any, make: Make, tmp_path: Path, counts: dict[str, int], message: str
) -> None:
    (tmp_path / "data").mkdir(exist_ok=True)
    result = longtail("inspect", make(counts) if counts else tmp_path / "data")
    assert result.code == 2
    assert message in result.err


def test_what_is_not_there_or_makes_no_sense_is_refused(longtail: Any, make: Make) -> None:
    assert "digits-lt" in longtail("inspect", "digit-lt").err
    assert longtail("inspect", "nowhere/at/all").code == 2
    assert (
        "--split-seed must be 0 or more" in longtail("inspect", "digits-lt", "--split-seed", -1).err
    )
    path = make({"a": 2, "b": 2})
    for file in path.rglob("*.png"):
        file.write_bytes(b"")
    result = longtail("inspect", path)
    assert result.code == 2
    assert "4 files are unreadable" in result.err


def test_a_class_with_one_image_and_no_test_set(longtail: Any, make: Make) -> None:
    result = longtail("inspect", make({"a": 4, "b": 1}))
    assert result.code == 0, result.err
    assert "1 classes have a single training image: b" in result.out
    assert "there are no test images" in result.out
    assert "There are no test images, so accuracy cannot be measured" in result.out


def test_advice_counts_in_words() -> None:
    row = {"name": "x", "test": 3, "known_to": 0.37}
    twice = {"conflicts": 0, "leaked": 0, "surplus": 2, "across": {"train and test": 0}}
    survey: dict[str, Any] = {
        **{
            "emptied": [],
            "unreadable": [{}],
            "duplicates": twice,
            "images": {"test": 6},
            "domains": None,
            "unseen": None,
            "not_tested": ["a", "b"],
            "classes": [row, row],
        },
        **{"known_to": 0.1, "imbalance": 50.0, "smallest": 3},
    }
    text = "\n".join(advice(survey))
    for words in (
        *(
            "1 image cannot be read",
            "2 images are copies of others within a split",
            "2 classes are without a test image (a, b)",
        ),
        *(
            "x has 3, so its recall is known to about ±0.4",
            "±10.0 points",
            "fewer than 5 training images",
        ),
    ):
        assert words in text


def test_a_count_of_leaks_is_a_lower_bound(longtail: Any, make: Make, tmp_path: Path) -> None:
    folder = make({"train/a": 8, "train/b": 8, "test/a": 4, "test/b": 4})
    copied = next((folder / "train" / "a").iterdir())
    next((folder / "test" / "a").iterdir()).write_bytes(copied.read_bytes())
    output = longtail("inspect", folder).out
    assert "At least 12.50% of the test set (1 image) is also in training or validation" in output
    assert "The same object photographed again is not found" in output
    assert "by that much" not in output


def test_its_help_needs_no_torch() -> None:
    assert "inspect" in {command.name for command in main.app.registered_commands}


def test_pairs_are_counted_and_their_parts(longtail: Any, tmp_path: Path) -> None:
    path, report = write_list(tmp_path), tmp_path / "findings.json"
    result = longtail("inspect", str(path), "--quick", "--json", str(report))
    assert result.code == 0, result.err
    printed = " ".join(result.out.split())
    assert "4 attributes x 3 objects, 9 candidates (75% of all): 5 seen" in printed
    assert "blue, old, wet: seen in a single pair" in printed
    assert "longtail train compcos" in printed
    pairs = json.loads(report.read_text())["pairs"]
    assert pairs["unseen"] == {"val": 2, "test": 2}
    assert pairs["object"][0] == {"name": "shoe", "pairs": 1, "images": 4}
    assert pairs["attribute"][-1] == {"name": "red", "pairs": 2, "images": 8}


def test_domains(make: Make, tmp_path: Path, longtail: Any) -> None:
    folder = make({"art/a": 5, "art/b": 6, "photo/a": 7, "photo/b": 8, "sketch/a": 9})
    page = tmp_path / "page.html"
    result = longtail("inspect", str(folder), "--test-domain", "photo", "--html", str(page))
    assert result.code == 0, result.err
    table = result.out[result.out.index("images by domain and class") :]
    assert re.search(r"class +art +photo \(test\) +sketch", table)
    assert re.search(r"\n *b +6 +8 +0", table)
    assert re.search(r"\n *all +11 +15 +9", table)
    assert "Some classes have no image in a domain: b in sketch." in result.out
    assert f"longtail train erm --data {folder} --test-domain photo" in result.out
    assert "Images by class and domain. The test set is photo." in page.read_text()


def test_unseen_classes_with_vectors_need_features(longtail: Any) -> None:
    result = longtail("inspect", "shapes-attributes", "--quick")
    assert result.code == 0, result.err
    printed = " ".join(result.out.split())
    assert "8 classes are without training images: plain training never predicts them." in printed
    assert "similar sizes" not in printed
    assert "next: longtail embed shapes-attributes --network NETWORK --out features.npz" in printed


def test_data_to_adapt_to_names_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    from longtail.cli.main import app
    from longtail.errors import LongtailError

    flags = ["--train-domain", "photo", "--test-domain", "night", "--protocol", "adapt"]
    app(["inspect", "shapes-domains", "--quick", *flags], standalone_mode=False)
    assert "longtail train mdd --data shapes-domains" in capsys.readouterr().out
    with pytest.raises(LongtailError, match="use `longtail train mdd`"):
        app(["train", "auto", "--data", "shapes-domains", *flags], standalone_mode=False)
