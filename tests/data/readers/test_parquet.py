import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtail.data.open import open_data
from longtail.data.readers import parquet as module
from longtail.data.readers.parquet import parquet
from longtail.errors import LongtailError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def png(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(256, size=(6, 6, 3), dtype=np.uint8)).save(
        stream, "PNG"
    )
    return stream.getvalue()


def shard(
    path: Path,
    labels: list[Any],
    *,
    first: int = 0,
    image: str = "image",
    label: str = "label",
    names: list[str] | None = None,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    structs = [{"bytes": png(first + i), "path": f"{first + i}.png"} for i in range(len(labels))]
    table = pa.table(
        {
            image: pa.array(structs, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            label: pa.array(labels),
        }
    )
    if names:
        features = {label: {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
    pq.write_table(table, path)


@pytest.mark.parametrize("sub", ["", "data"])
def test_shards_by_split_with_class_names(tmp_path: Path, sub: str) -> None:
    shard(tmp_path / sub / "train-00000-of-00002.parquet", [0, 1, 0], names=["cat", "dog"])
    shard(tmp_path / sub / "train-00001-of-00002.parquet", [1] * 7, first=3, names=["cat", "dog"])
    shard(tmp_path / sub / "validation-00000-of-00001.parquet", [1], first=20, names=["cat", "dog"])
    shard(tmp_path / sub / "test-00000-of-00001.parquet", [0, 1], first=30, names=["cat", "dog"])
    data = open_data(str(tmp_path))
    assert data.classes == ("cat", "dog")
    assert (len(data.train), len(data.val), len(data.test)) == (10, 1, 2)
    assert data.train.ids[:2] == ("train/0.png", "train/1.png")
    assert data.train.target.tolist() == [0, 1, 0] + [1] * 7
    assert np.array_equal(np.asarray(data.test.inputs.image(1)).shape, (32, 32, 3))


def test_one_file_is_training_and_words_are_sorted(tmp_path: Path) -> None:
    shard(tmp_path / "mine.parquet", ["wolf", "ant", "wolf"], image="img", label="fine_label")
    source = parquet(tmp_path / "mine.parquet")
    assert source.classes == ("ant", "wolf")
    assert source.splits["train"].target.tolist() == [1, 0, 1]
    assert source.name == "mine"


def test_what_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(tmp_path / "a" / "test-0.parquet", [0, 1])
    with pytest.raises(
        ValueError, match=r"expected parquet files of a training split .* got only test"
    ):
        parquet(tmp_path / "a")
    shard(tmp_path / "b" / "train-0.parquet", [0, 1], image="photo")
    with pytest.raises(
        ValueError,
        match="expected a column img or image and a column label or fine_label, got photo, label",
    ):
        parquet(tmp_path / "b")
    shard(tmp_path / "c" / "train-0.parquet", [0, 2])
    with pytest.raises(ValueError, match="without gaps, got no image of label 1"):
        parquet(tmp_path / "c")
    shard(tmp_path / "d" / "train-0.parquet", [0, 2], names=["cat", "dog"])
    with pytest.raises(ValueError, match="expected labels 0 to 1"):
        parquet(tmp_path / "d")
    structs = pa.array(
        [{"bytes": None, "path": None}],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    pq.write_table(pa.table({"image": structs, "label": pa.array([0])}), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="column 'image' has no image bytes in row 0"):
        parquet(tmp_path / "empty.parquet")
    for name in ("train-0", "dev-0", "eval-0", "test-0"):
        shard(tmp_path / "e" / f"{name}.parquet", [0, 1])
    with pytest.raises(
        ValueError,
        match=r"start with a split .* got dev-0.parquet, eval-0.parquet beside test-0",
    ):
        parquet(tmp_path / "e")
    shard(tmp_path / "f" / "train-0.parquet", [0, None, 1])
    with pytest.raises(
        ValueError,
        match=r"expected a label for every image, got none in row 1 of train\. Label or remove",
    ):
        parquet(tmp_path / "f")
    monkeypatch.setattr(module, "LARGEST", 10)
    with pytest.raises(ValueError, match="Unpack the images"):
        parquet(tmp_path / "c")


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard(tmp_path / "train.parquet", [0, 1])
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match=r"pip install 'longtail\[data\]'"):
        parquet(tmp_path)


def table(path: Path, image: Any, label: Any, **metadata: str) -> Path:
    columns = pa.table({"image": image, "label": label})
    if metadata:
        columns = columns.replace_schema_metadata(metadata)
    pq.write_table(columns, path)
    return path


def test_images_of_other_writers_are_read(tmp_path: Path) -> None:
    labels = pa.array([0, 1])
    blobs = [png(0), png(1)]
    only_bytes = pa.array([{"bytes": blob} for blob in blobs])
    for number, image in enumerate(
        [pa.array(blobs), pa.array(blobs, pa.large_binary()), only_bytes]
    ):
        images = (
            parquet(table(tmp_path / f"{number}.parquet", image, labels)).splits["train"].inputs
        )
        assert [images.content(row) for row in range(2)] == blobs
    for row, blob in enumerate(blobs):
        (tmp_path / f"{row}.png").write_bytes(blob)
    only_paths = pa.array([{"path": "0.png"}, {"path": "1.png"}])
    for number, image in enumerate([pa.array(["0.png", "1.png"]), only_paths]):
        images = (
            parquet(table(tmp_path / f"p{number}.parquet", image, labels)).splits["train"].inputs
        )
        assert [images.content(row) for row in range(2)] == blobs
    open_data(tmp_path / "p0.parquet", protocol="paper")


@pytest.mark.parametrize(
    "metadata", ["[]", "nonsense", "{}", '{"info": {"features": []}}', "[" * 5000]
)
def test_foreign_metadata_is_ignored(metadata: str, tmp_path: Path) -> None:
    path = table(
        tmp_path / "x.parquet", pa.array([png(0)] * 2), pa.array([0, 1]), huggingface=metadata
    )
    assert parquet(path).classes == ("0", "1")


def test_integer_names_of_classes_are_text(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.parquet", [0, 1], names=[7, 9])  # type: ignore[list-item]
    assert parquet(tmp_path / "train-0.parquet").classes == ("7", "9")


@pytest.mark.parametrize(
    ("image", "label", "message"),
    [
        ([1, 2], [0, 1], "'image' to hold encoded images .* got int64"),
        ([{"x": 1}, {"x": 2}], [0, 1], "'image' to hold encoded images .* got struct<x: int64>"),
        ([b"a", b"b"], [0.5, 1.0], "'label' to hold one integer or name .* got double"),
        ([b"a", b"b"], [[0], [1]], "'label' to hold one integer or name .* got list<"),
    ],
)
def test_columns_of_other_types_are_named(
    image: Any, label: Any, message: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "x.parquet", pa.array(image), pa.array(label))
    with pytest.raises(LongtailError, match=rf"x\.parquet: expected column {message}"):
        parquet(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_cut_files_are_named(share: float, tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", pa.array([png(0)] * 2), pa.array([0, 1]))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(LongtailError, match=r"x\.parquet cannot be read as parquet"):
        parquet(path)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", pa.array([], pa.binary()), pa.array([], pa.int64()))
    with pytest.raises(LongtailError, match="no row"):
        parquet(path)


def test_text_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    paths = pa.array([b"a\x80.png"] * 2, pa.binary()).view(pa.string())
    images = pa.StructArray.from_arrays([pa.array([b"x"] * 2), paths], ["bytes", "path"])
    path = tmp_path / "broken.parquet"
    pq.write_table(pa.table({"image": images, "label": pa.array([0, 1])}), path)
    with pytest.raises(LongtailError, match=r"broken.parquet cannot be read as parquet .*utf-8"):
        parquet(path)


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    columns = pa.table([[png(0)] * 2, [png(1)] * 2, [0, 1]], names=["image", "image", "label"])
    pq.write_table(columns, tmp_path / "train.parquet")
    with pytest.raises(LongtailError, match=r"train\.parquet: expected each column once.*image"):
        parquet(tmp_path)


@pytest.mark.parametrize(
    "image",
    [
        pa.array([[b"x"]] * 2),
        pa.array([{"bytes": [1, 2], "path": "x"}] * 2),
        pa.array([{"bytes": "x"}] * 2),
        pa.array([[("a", b"x")]] * 2, pa.map_(pa.string(), pa.binary())),
    ],
    ids=["lists", "numbers", "text", "maps"],
)
def test_bytes_of_images_inside_other_types_are_refused(image: Any, tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", image, pa.array([0, 1]))
    with pytest.raises(LongtailError, match=r"a\.parquet: expected column 'image' to hold encoded"):
        parquet(path)


def test_images_in_a_dictionary_are_read(tmp_path: Path) -> None:
    image = pa.array([png(0), png(1)]).dictionary_encode()
    source = parquet(table(tmp_path / "a.parquet", image, pa.array([0, 1])))
    assert source.splits["train"].inputs.content(1) == png(1)
