"""Read damaged images, lists, parquet files and run folders: each is read, or refused in words.

    python benchmarks/fuzz.py [--seconds 60] [--only images] [--seed 0]

Hypothesis damages valid files: it overwrites, inserts, repeats and removes bytes, and shrinks what
fails to the smallest damage. A reader may return, or raise `LongtailError` or `OSError`; anything
else is a failure, and the example is printed. The targets share the time equally.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from PIL import Image

from longtail.data.images.decoding import check, decode
from longtail.data.images.reading import read
from longtail.data.open import find, open_data
from longtail.data.request import DataRequest
from longtail.data.words import word_vectors
from longtail.errors import LongtailError
from longtail.records.kinds import read_recipe
from longtail.records.predictions import read_predictions
from longtail.records.row import read_row

EXAMPLES = 40
"""Examples of a round; rounds follow each other with other seeds until the time is over."""

Target = tuple[SearchStrategy[tuple[str, bytes]], Callable[[str, bytes], object]]


def damaged(files: Mapping[str, bytes]) -> SearchStrategy[tuple[str, bytes]]:
    """A file by name, and its content with some damage."""
    edits = st.lists(
        st.tuples(
            st.sampled_from(("set", "insert", "remove", "repeat")),
            st.floats(0, 1),
            st.binary(min_size=1, max_size=12),
        ),
        min_size=1,
        max_size=6,
    )

    def apply(name: str, changes: list[tuple[str, float, bytes]]) -> tuple[str, bytes]:
        content = bytearray(files[name])
        for kind, place, data in changes:
            start = int(place * len(content))
            if kind == "set":
                content[start : start + len(data)] = data
            elif kind == "insert":
                content[start:start] = data
            elif kind == "remove":
                del content[start : start + len(data) ** 2]
            else:
                content[start:start] = content[start : start + 200] * data[0]
        return name, bytes(content)

    return st.builds(apply, st.sampled_from(sorted(files)), edits)


def images(folder: Path) -> Target:
    """Images of all usual formats and modes."""
    files = {}
    rng = np.random.default_rng(0)
    pixels = Image.fromarray(rng.integers(0, 255, (13, 17, 3), dtype=np.uint8))
    for suffix in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"):
        for mode in ("RGB", "L"):
            buffer = io.BytesIO()
            pixels.convert(mode).save(buffer, suffix)
            files[f"{mode}.{suffix}"] = buffer.getvalue()
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", exif=exif, progressive=True)
    files["exif.jpeg"] = buffer.getvalue()

    def decode_both(name: str, content: bytes) -> None:
        check(content)
        assert decode(content).mode == "RGB"

    return damaged(files), decode_both


def lists(folder: Path) -> Target:
    """Lists as text and CSV, with and without a header and columns."""
    for name in ("a", "b", "c", "d"):
        Image.new("RGB", (4, 4)).save(folder / f"{name}.png")
    rows = [("a.png", "x", "train"), ("b.png", "y", "train"), ("c.png", "x", "test")]
    files = {
        "plain.csv": "".join(f"{path},{label}\n" for path, label, _ in rows),
        "split.csv": "path,label,split\n" + "".join(",".join(row) + "\n" for row in rows),
        "wide.csv": "path,label,site,age\n" + "".join(f"{a},{b},s,3\n" for a, b, _ in rows),
        "pairs.csv": "path,attribute,object\na.png,old,cat\nb.png,new,dog\nc.png,old,dog\n",
        "numbers.txt": "a.png 0\nb.png 1\nc.png 7\nd.png 100\n",
        "names.txt": "a.png one\nb.png two\nc.png one\n",
    }

    def open_list(name: str, content: bytes) -> None:
        path = folder / f"fuzzed-{name}"
        path.write_bytes(content)
        read(find(DataRequest(str(path))), size=4)

    return damaged({name: text.encode() for name, text in files.items()}), open_list


def parquet(folder: Path) -> Target:
    """Shards as the Hugging Face Hub writes them, and as others do."""
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    Image.new("RGB", (5, 4)).save(buffer, "PNG")
    image = buffer.getvalue()
    tables = {
        "hub": {"image": [{"bytes": image, "path": "a.png"}] * 6, "label": [0, 1, 2] * 2},
        "bytes": {"image": [image] * 6, "label": ["a", "b"] * 3},
    }
    files = {}
    for name, columns in tables.items():
        sink = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), sink)
        files[name] = sink.getvalue()

    def open_parquet(name: str, content: bytes) -> None:
        (folder / "train-00000-of-00001.parquet").write_bytes(content)
        read(find(DataRequest(str(folder))), size=4)

    return damaged(files), open_parquet


def features(folder: Path) -> Target:
    """Feature vectors with columns and class vectors, and word vectors, as .npz and as text."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"features": rng.normal(size=(12, 3)), "target": np.arange(12) % 3}
    arrays |= {"attribute.vector": np.eye(3), "column.domain": np.array(["a", "b"] * 6)}
    words: dict[str, Any] = {"words": np.array(["red", "cat"]), "vectors": np.eye(2)}
    files = {"words.txt": b"2 3\nred 1 2 3\ncat 0.5 -1 2e3\n"}
    for name, content in {"features.npz": arrays, "words.npz": words}.items():
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **content)
        files[name] = buffer.getvalue()

    def open_features(name: str, content: bytes) -> None:
        (folder / name).write_bytes(content)
        if name.startswith("words"):
            word_vectors(folder / name, {"attribute": ["red"], "object": ["cat"]})
        else:
            open_data(folder / name)

    return damaged(files), open_features


def mat(folder: Path) -> Target:
    """Two MATLAB files with features and splits, compressed and not."""
    from scipy.io import savemat

    numbers = {"features": np.eye(9), "labels": np.repeat([1, 2, 3], 3)[:, None]}
    names = np.array([["ant"], ["bee"], ["cat"]], dtype=object)
    locations = {"trainval_loc": [1, 2, 4, 5], "test_seen_loc": [3, 6]}
    locations |= {"test_unseen_loc": [7, 8, 9]}
    about = {"att": np.eye(3), "allclasses_names": names}
    about |= {name: np.array(rows)[:, None] for name, rows in locations.items()}
    whole, files = {}, {}
    for name, content in {"res101.mat": numbers, "att_splits.mat": about}.items():
        savemat(folder / name, content)
        whole[name] = files[name] = (folder / name).read_bytes()
        savemat(folder / name, content, do_compression=True)
        files[f"small-{name}"] = (folder / name).read_bytes()

    def open_mat(name: str, content: bytes) -> None:
        for file, undamaged in whole.items():
            (folder / file).write_bytes(undamaged)
        (folder / name.removeprefix("small-")).write_bytes(content)
        open_data(folder)

    return damaged(files), open_mat


def metadata(folder: Path) -> Target:
    """The layout of MIT-States: lists of pairs, and metadata that torch saved."""
    import torch

    place = folder / "compositional-split-natural"
    (folder / "images").mkdir()
    place.mkdir()
    pairs = {"train": ("old cat", "new dog"), "val": ("old dog",), "test": ("new cat",)}
    rows, files = [], {}
    for split, listed in pairs.items():
        files[f"{split}_pairs.txt"] = "".join(f"{pair}\n" for pair in listed).encode()
        for pair in listed:
            attribute, _, obj = pair.partition(" ")
            Image.new("RGB", (4, 4)).save(folder / "images" / f"{attribute}_{obj}.png")
            row = {"image": f"{attribute}_{obj}.png", "attr": attribute, "obj": obj, "set": split}
            rows.append(row)
    for name, content in files.items():
        (place / name).write_bytes(content)
    path = folder / f"metadata_{place.name}.t7"
    torch.save(rows, path)
    files[path.name] = path.read_bytes()

    def open_pairs(name: str, content: bytes) -> None:
        file = path if name == path.name else place / name
        file.write_bytes(content)
        try:
            find(DataRequest(str(folder)))
        finally:
            file.write_bytes(files[name])

    return damaged(files), open_pairs


def runs(folder: Path) -> Target:
    """The files of a finished run."""
    from longtail.report.public import write_report
    from longtail.runs import load, train

    complete, run = folder / "whole", folder / "run"
    train("cross_entropy", "digits-lt", complete, epochs=1, batch=128, device="cpu", threads=1)
    names = ("row.json", "recipe.json", "model/spec.json", "model/conformal.json",
             "predictions/test.npz", "model/model.safetensors", "train/journal.jsonl")  # fmt: skip
    files = {name: (complete / name).read_bytes() for name in names if (complete / name).exists()}
    shutil.copytree(complete, run)

    def read_run(name: str, content: bytes) -> None:
        (run / name).write_bytes(content)
        try:
            read_row(run)
            read_recipe(run)
            read_predictions(run / "predictions" / "test.npz")
            load(run, device="cpu")
            write_report([run], folder / "page.html")
        finally:
            shutil.copyfile(complete / name, run / name)

    return damaged(files), read_run


TARGETS: dict[str, Callable[[Path], Target]] = {
    "images": images,
    "lists": lists,
    "parquet": parquet,
    "features": features,
    "mat": mat,
    "metadata": metadata,
    "runs": runs,
}


def fuzz(target: Target, *, seconds: float, number: int) -> int:
    """Run rounds of examples until the time is over; how many examples were tried."""
    strategy, reader = target
    deadline, tried = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:

        @seed(number)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def holds(example: tuple[str, bytes]) -> None:
            nonlocal tried
            tried += 1
            try:
                reader(*example)
            except (LongtailError, OSError):
                return

        holds()
        number += 1
    return tried


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=TARGETS, action="append")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    chosen = flags.only or list(TARGETS)
    failed = 0
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            target = TARGETS[name](Path(folder))
            try:
                tried = fuzz(target, seconds=flags.seconds / len(chosen), number=flags.seed)
                print(f"{name}: {tried:,} damaged files were read or refused in words", flush=True)
            except Exception as error:
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                import traceback

                traceback.print_exc()
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
