"""Features, .mat, word vectors, pairs, domains and further classes, and specs of other networks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostile_cases import Case, Place, train
from hostile_cases.images_and_lists import lines, listed

Arrays = Mapping[str, NDArray[Any]]

TARGET = np.arange(24) % 3
FEATURES: Arrays = {
    "features": np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32) + TARGET[:, None],
    "target": TARGET,
}


def _npz(changes: Mapping[str, object], name: str = "f.npz") -> Callable[[Place], object]:
    """Valid features, in which some arrays are others; None removes one."""

    def setup(place: Place) -> None:
        arrays = {key: value for key, value in {**FEATURES, **changes}.items() if value is not None}
        np.savez(place / name, **{key: np.asarray(value) for key, value in arrays.items()})  # type: ignore[arg-type]

    return setup


FEATURE_FILES: dict[str, tuple[Mapping[str, object], str]] = {
    "no-target": ({"target": None}, "missing target"),
    "text": ({"features": np.full((24, 4), "x")}, "must be numbers"),
    "nan": ({"features": np.full((24, 4), np.nan)}, "finite"),
    "cube": ({"features": np.zeros((24, 4, 4))}, r"expected features \(N, D\)"),
    "empty": ({"features": np.zeros((0, 4)), "target": TARGET[:0]}, "expected features"),
    "fewer-targets": ({"target": TARGET[:5]}, "each of 24 rows|expected features"),
    "float-targets": ({"target": TARGET + 0.5}, "of integers"),
    "negative-targets": ({"target": TARGET - 1}, "0 or more|expected"),
    "unknown-split": ({"split": np.full(24, "exam")}, "train, val and test"),
    "attribute-of-others": ({"attribute.vector": np.ones((2, 5))}, "vector"),
    "attribute-nan": ({"attribute.vector": np.full((3, 5), np.nan)}, "vector.*NaN"),
    "deep-backbone": ({"backbone": "[" * 100_000}, "backbone cannot be read"),
    "objects": ({"column.x": np.array([None] * 24)}, "column.x"),
}

BAD: dict[str, Callable[[Path], object]] = {
    "pipe": lambda path: os.mkfifo(path),
    "endless": lambda path: os.symlink("/dev/zero", path),
    "sparse": lambda path: os.truncate(os.open(path, os.O_WRONLY | os.O_CREAT), 40 << 30),
    "text": lambda path: path.write_text("nothing " * 100),
    "empty": lambda path: path.touch(),
}


def _bad(kind: str, name: str) -> Callable[[Place], object]:
    def setup(place: Place) -> None:
        place.photos()
        place.run()
        BAD[kind](place / name)

    return setup


def _mat(change: Callable[[Path], object]) -> Callable[[Place], object]:
    """A folder with two files of three classes, one of them unseen, and some damage."""

    def setup(place: Place) -> None:
        from scipy.io import savemat

        folder, target = place.folder_at("mat"), np.repeat([1, 2, 3], 6)[:, None]
        locations = {
            "trainval_loc": [*range(1, 5), *range(7, 11)],
            "test_seen_loc": [5, 6, 11, 12],
            "test_unseen_loc": range(13, 19),
        }
        savemat(folder / "res101.mat", {"features": np.eye(18), "labels": target})
        savemat(
            folder / "att_splits.mat",
            {
                "att": np.eye(3),
                "allclasses_names": np.array([["ant"], ["bee"], ["cat"]], dtype=object),
                **{name: np.array([*rows])[:, None] for name, rows in locations.items()},
            },
        )
        change(folder)

    return setup


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def _resaved(file: str, **arrays: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        from scipy.io import loadmat, savemat

        content = {k: v for k, v in loadmat(folder / file).items() if not k.startswith("_")}
        savemat(folder / file, {**content, **arrays})

    return change


MATS: dict[str, tuple[int, Callable[[Path], object], str]] = {
    "pipe": (5, lambda folder: os.mkfifo(folder / "x.mat"), "is a pipe"),
    "endless": (5, lambda folder: os.symlink("/dev/zero", folder / "x.mat"), "is a device"),
    "cut": (8, lambda folder: _cut(folder / "res101.mat"), "cannot be read|missing"),
    "text": (8, lambda folder: (folder / "x.mat").write_text("x" * 200), "cannot be read"),
    "text-labels": (8, _resaved("res101.mat", labels=np.array(["x"] * 18)), "must have numbers"),
    "cells": (8, _resaved("res101.mat", features=np.array([[{}]], dtype=object)), "features"),
    "nan-locations": (
        8,
        _resaved("att_splits.mat", trainval_loc=np.full((8, 1), np.nan)),
        "finite",
    ),
    "far-locations": (8, _resaved("att_splits.mat", trainval_loc=[[10**15]]), "locations from 1"),
}

VECTORS = ("--data", "f.npz", "--out", "out", "--epochs", "1", "--batch", "8", "--device", "cpu")

PAIRS = ("compcos", "--data", "shapes-pairs", "--out", "out", "--device", "cpu", "--threads", "1")

PAIR_LISTS = {
    "no-object": "path,attribute\nphotos/ant/00.png,old\n",
    "empty-cell": "path,attribute,object\nphotos/ant/00.png,,ant\n",
    "one-pair": "path,attribute,object\nphotos/ant/00.png,old,ant\n",
    "missing-images": "path,attribute,object\nx.png,old,ant\ny.png,new,bee\n",
    "unknown-split": "path,attribute,object,split\nphotos/ant/00.png,old,ant,exam\n",
}


def _domains(place: Place) -> None:
    for domain in ("photo", "sketch", "\x1b[2Jnight"):
        place.photos(f"domains/{domain}")


def _uneven_domains(place: Place) -> None:
    _domains(place)
    shutil.rmtree(place / "domains/sketch/cat")


def _spec(**network: object) -> Callable[[Place], object]:
    """A run whose spec names another network than its weights are of."""

    def setup(place: Place) -> None:
        place.photos()
        path = place.run() / "model" / "spec.json"
        spec = json.loads(path.read_text())
        spec["network"]["network"] |= network
        path.write_text(json.dumps(spec))

    return setup


SPECS: dict[str, dict[str, object]] = {
    "wide": {"width": 20_000},
    "negative": {"width": -3},
    "text": {"width": "x"},
    "null": {"width": None},
    "large": {"name": "timm:vit_huge_patch14_224", "size": 224},
    "many-patches": {"name": "vit_mini", "size": 4096, "patch": 1},
}

CLASS_LISTS: dict[str, tuple[str | bytes, str]] = {
    "empty.csv": ("", "error: "),
    "latin.csv": ("class,é\nx,1\n".encode("latin-1"), "expected UTF-8"),
    "long.csv": ("class,a\n" + "x" * 140_000 + ",1\n", "field larger"),
    "formula.csv": ("=1+1,b\nx,1\n", "error: "),
    "no.npz": (b"nothing", "error: "),
}


def _class_list(name: str) -> Callable[[Place], object]:
    def setup(place: Place) -> None:
        place.photos()
        place.run()
        place.write(name, CLASS_LISTS[name][0])

    return setup


def _kept(place: Place, output: str) -> None:
    assert (place / "f.npz").read_bytes() == b"precious"


CASES = [
    *(Case(f"train-features-{name}", ("train", "eszsl", "--data", "f.npz", "--out", "out"), point=8, message=f"error: .*{message}",
           setup=_npz(changes)) for name, (changes, message) in FEATURE_FILES.items()),
    Case("train-features-of-images", ("train", "cross_entropy", *VECTORS), message="pass --network vectors",
         setup=_npz({})),
    Case("train-features-with-ids", ("train", "cross_entropy", *VECTORS, "--network", "vectors"),
         point=6, code=0, message="run: ", setup=_npz({"target": 10**12 * (1 + TARGET)})),
    Case("train-images-as-vectors", train("--network", "vectors"), message="error: ",
         setup=lambda place: place.photos()),
    Case("train-eszsl-without-vectors", ("train", "eszsl", "--data", "f.npz", "--out", "out"),
         message="error: ", setup=_npz({})),
    *(Case(f"{verb}-{kind}-{suffix}", (verb, f"bad.{suffix}", *more), point=5, message="error: ",
           setup=_bad(kind, f"bad.{suffix}"))
      for kind in ("pipe", "endless", "sparse") for suffix in ("csv", "npz", "mat")
      for verb, more in (("inspect", ()), ("embed", ("--network", "run", "--out", "f.npz")))
      if verb == "inspect" or suffix == "csv"),
    *(Case(f"inspect-mat-{name}", ("inspect", "mat"), point=point, message=f"error: .*{message}",
           setup=_mat(change)) for name, (point, change, message) in MATS.items()),
    Case("inspect-mat", ("inspect", "mat", "--quick"), code=0, message="3 classes",
         setup=_mat(lambda folder: None)),
    *(Case(f"train-words-{kind}", ("train", *PAIRS, "--word-vectors", "words.txt"), point=5,
           message="error: .*words.txt", setup=_bad(kind, "words.txt")) for kind in BAD),
    *(Case(f"train-words-npz-{kind}", ("train", *PAIRS, "--word-vectors", "words.npz"), point=8,
           message="error: .*words.npz", setup=_bad(kind, "words.npz"))
      for kind in ("text", "sparse", "endless")),
    Case("train-words-without-pairs", train("--word-vectors", "words.txt"),
         message="apply only to data whose classes are pairs", setup=_bad("text", "words.txt")),
    *(Case(f"inspect-pairs-{name}", ("inspect", "list.csv"), point=16, message="error: ",
           setup=listed(content)) for name, content in PAIR_LISTS.items()),
    Case("train-open-pairs-of-classes", train("--pairs", "open"), message="--pairs",
         setup=lambda place: place.photos()),
    *(Case(f"train-domain-{name}", ("train", recipe, "--data", "domains", "--out", "out", *words),
           point=20, message=f"error: .*{message}", setup=_domains)
      for name, recipe, words, message in (
          ("unknown", "erm", ("--test-domain", "painting"), "painting"),
          ("all", "erm", ("--test-domain", "all"), "one test domain"),
          ("twice", "erm", ("--test-domain", "photo", "--train-domain", "photo"), "--train-domain"),
          ("missing", "erm", (), "test-domain"),
          ("control", "erm", ("--test-domain", "\x1b[2Jnigh"), r"\\x1b"),
          ("adapt-alone", "mdd", ("--test-domain", "photo"), "adapt"),
      )),
    Case("train-domain-without-domains", ("train", "erm", "--data", "photos", "--out", "out",
                                          "--test-domain", "ant"), point=20, message="error: ",
         setup=lambda place: place.photos()),
    Case("inspect-domain-tree", ("inspect", "domains"), point=20, code=0, message="--test-domain",
         setup=_domains),
    *(Case(f"{verb}-domain-tree-uneven", argv, point=20, code=0, message="--test-domain",
           setup=_uneven_domains)
      for verb, argv in (("inspect", ("inspect", "domains")), ("train", train(data="domains")))),
    *(Case(f"predict-spec-{name}", ("predict", "run", "photos"), point=8,
           message="error: .*(cannot be built|no keyword|unexpected|keyword|pretrained)",
           setup=_spec(**network)) for name, network in SPECS.items()),
    Case("export-spec-wide", ("export", "run", "--to", "torch"), point=8, message="cannot be built",
         setup=_spec(width=20_000)),
    Case("serve-spec-negative", ("serve", "run", "--port", "0"), point=8, message="cannot be built",
         setup=_spec(width=-3)),
    *(Case(f"predict-weights-{kind}", ("predict", "run", "photos"), point=5,
           message="error: .*model.safetensors",
           setup=lambda place, kind=kind: (  # type: ignore[misc]
               place.photos(), (place.run() / "model/model.safetensors").unlink(),
               BAD[kind](place / "run/model/model.safetensors")))
      for kind in ("pipe", "endless", "sparse")),
    *(Case(f"train-weights-{kind}", train("--weights", "w.pth", recipe="vit"), point=5,
           message="error: .*w.pth", setup=_bad(kind, "w.pth")) for kind in BAD),
    *(Case(f"predict-classes-{name.replace('.', '-')}",
           ("predict", "run", "photos", "--classes", name), point=16, message="error: ",
           setup=_class_list(name)) for name in CLASS_LISTS),
    *(Case(f"predict-classes-{kind}", ("predict", "run", "photos", "--classes", "c.csv"), point=5,
           message="error: .*c.csv", setup=_bad(kind, "c.csv")) for kind in ("pipe", "sparse")),
    Case("embed-over-another-file", ("embed", "photos", "--network", "run", "--out", "f.npz"),
         point=3, message="choose another --out, or delete it", check=_kept,
         setup=lambda place: (place.photos(), place.run(), place.write("f.npz", "precious"))),
    Case("embed-into-the-data", ("embed", "photos", "--network", "run", "--out", "photos/f.npz"),
         point=3, message="outside of the data", setup=lambda place: (place.photos(), place.run())),
    Case("embed-a-flag-of-training", ("embed", "photos", "--network", "run", "--out", "f.npz",
                                      "--protocol", "paper"), message="--protocol",
         setup=lambda place: (place.photos(), place.run())),
    Case("embed-random-network-alone", ("embed", "photos", "--network", "fast_cnn", "--out",
                                        "f.npz"), message="--weights random",
         setup=lambda place: place.photos()),
    Case("embed-list-of-ids", ("embed", "list.csv", "--network", "run", "--out", "f.npz"), point=6,
         code=0, message="features: ",
         setup=lambda place: (place.run(), listed(lines(lambda i: str(10**12 + i % 3)))(place))),
    *(Case(f"train-large-{name}", ("train", recipe, "--data", "photos", "--out", "out",
                                   "--device", "cpu", "--threads", "1", *words), point=11,
           message="error: .*(GB|patches)", setup=lambda place: place.photos())
      for name, recipe, words in (
          ("fast-vit", "cross_entropy", ("--network", "fast_vit", "--size", "4096")),
          ("ride", "ride", ("--experts", "64", "--size", "1024")),
          ("paco", "paco", ("--size", "2048")),
          ("patches", "vit", ("--network", "vit_mini", "--size", "4096", "--patch", "1")),
          ("teacher", "deit_lt", ("--teacher-size", "4096")),
      )),
    *(Case(f"train-wide-{name}", ("train", recipe, "--data", data, "--out", "out",
                                  "--device", "cpu", "--threads", "1", *words), point=11,
           message="error: .*GB of memory")
      for name, recipe, data, words in (
          ("mdd", "mdd", "shapes-domains", ("--test-domain", "sketch", "--protocol", "adapt",
                                            "--bottleneck", "65536", "--head-width", "65536")),
          ("compcos", "compcos", "shapes-pairs", ("--embedder", "65536,65536")),
      )),
    Case("sweep-endless-trials", ("sweep", "cross_entropy", "--data", "photos", "--search",
                                  "lr=0.1..1", "--trials", "1000000000"), point=11,
         message="--trials must be 1 to 10,000", setup=lambda place: place.photos()),
    Case("train-endless-features", ("train", "ce_gzsl", "--data", "f.npz", "--out", "out",
                                    "--synthetic", "10000000"), point=11,
         message="error: .*--synthetic", setup=_npz({"attribute.vector": np.eye(3)})),
    Case("train-large-teachers-are-capped",
         ("train", "deit_lt", "--data", "photos", "--out", "out", "--epochs", "1", "--size", "32",
          "--teacher-network", "fast_cnn", "--device", "cpu", "--threads", "1", "--dry-run"),
         point=19, code=0, setup=lambda place: _enlarged(place.photos()),
         message="images of the teacher are resized to 64 pixels.*pass --teacher-size"),
]  # fmt: skip


def _enlarged(folder: Path) -> None:
    from PIL import Image

    for index, path in enumerate(sorted(folder.rglob("*.png"))):
        Image.new("RGB", (300, 230 + index)).save(path)
