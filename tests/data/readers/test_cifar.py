import hashlib
import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image

from longtail.data.images.stores import ArrayImages
from longtail.data.open import open_data
from longtail.data.readers import cifar as module
from longtail.data.readers.cifar import CAVEAT, KINDS, cifar
from longtail.data.splits import tail_counts, tail_rows

EACH = 40  # training images per class: enough for a cut at imbalance 10
PIXELS = np.random.default_rng(0).integers(256, size=(10 * EACH + 30, 32, 32, 3), dtype=np.uint8)
LABELS = np.concatenate(
    [np.random.default_rng(1).permutation(np.repeat(np.arange(10), EACH)), np.arange(30) % 10]
)


def write_parquet(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    folder.mkdir(parents=True)
    for split, part in (("train", slice(0, 10 * EACH)), ("test", slice(10 * EACH, None))):
        structs = []
        for image in PIXELS[part]:
            stream = io.BytesIO()
            Image.fromarray(image).save(stream, "PNG")
            structs.append({"bytes": stream.getvalue(), "path": None})
        images = pa.array(structs, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
        pq.write_table(
            pa.table({"img": images, "label": pa.array(LABELS[part])}),
            folder / f"{split}-00000-of-00001.parquet",
        )


def write_torchvision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True)

    def save(name: str, content: dict[str, Any]) -> str:
        (place / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((place / name).read_bytes()).hexdigest()

    flat = PIXELS.transpose(0, 3, 1, 2).reshape(len(PIXELS), -1)
    half = 5 * EACH
    parts = {
        "data_batch_1": slice(0, half),
        "data_batch_2": slice(half, 2 * half),
        "test_batch": slice(2 * half, None),
    }
    sums = {
        name: save(name, {"data": flat[part], "labels": LABELS[part].tolist()})
        for name, part in parts.items()
    }
    monkeypatch.setattr(
        CIFAR10, "train_list", [[name, sums[name]] for name in ("data_batch_1", "data_batch_2")]
    )
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    meta = save("batches.meta", {"label_names": list(KINDS["cifar10"].classes)})
    monkeypatch.setattr(
        CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": meta}
    )


def test_a_cut_from_parquet_has_the_conventional_rows_and_its_mark(tmp_path: Path) -> None:
    write_parquet(tmp_path / "cifar10")
    data = open_data("cifar10-lt", root=tmp_path, imbalance=10, protocol="paper")
    rows = tail_rows(LABELS[: 10 * EACH], tail_counts(EACH, 10, imbalance=10))
    assert data.train.ids == tuple(f"train/{row}" for row in rows)
    assert isinstance(data.train.inputs, ArrayImages)
    assert np.array_equal(data.train.inputs.pixels.permute(0, 2, 3, 1).numpy(), PIXELS[rows])
    assert data.train.target.tolist() == LABELS[rows].tolist()
    assert data.test.target.tolist() == LABELS[10 * EACH :].tolist()
    assert (data.caveats, data.size, data.groups.rule, data.classes[3]) == (
        (CAVEAT,),
        32,
        "ranks: 3/4/3",
        "cat",
    )
    assert open_data("cifar10", root=tmp_path / "cifar10").caveats == ()


def test_a_source_in_original_order_is_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "x")
    order = hashlib.sha256(LABELS[: 10 * EACH].astype(np.uint8).tobytes()).hexdigest()
    monkeypatch.setitem(module.KINDS, "cifar10", replace(KINDS["cifar10"], order=order))
    assert cifar("cifar10-lt", root=tmp_path / "x", imbalance=10).caveats == ()


def test_torchvisions_files_come_first_and_give_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "hub" / "cifar10" / "plain_text")
    write_torchvision(tmp_path / "tv", monkeypatch)
    hub = open_data("cifar10-lt", root=tmp_path / "hub", imbalance=10)
    tv = open_data("cifar10-lt", root=tmp_path / "tv", imbalance=10)
    assert hub.hash == tv.hash
    assert (hub.caveats, tv.caveats) == ((CAVEAT,), ())
    (tmp_path / "tv" / "cifar-10-batches-py" / "data_batch_2").write_bytes(b"altered")
    with pytest.raises(ValueError, match="incomplete or changed"):
        cifar("cifar10", root=tmp_path / "tv")


def test_no_copy_and_no_network_says_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import CIFAR10

    def offline(self: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr(CIFAR10, "download", offline)
    with pytest.raises(
        ValueError,
        match=(
            r"could not be downloaded .*no network.* Put torchvision's folder"
            r" cifar-100-python or .* --root"
        ),
    ):
        cifar("cifar100-lt", root=tmp_path / "none")


def test_files_of_another_set_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "x")
    with pytest.raises(ValueError, match="expected cifar100 with labels 0 to 99, equally often"):
        cifar("cifar100-lt", root=tmp_path / "x")


def test_class_names() -> None:
    assert [len(KINDS[name].classes) for name in ("cifar10", "cifar100")] == [10, 100]
    assert list(KINDS["cifar100"].classes) == sorted(set(KINDS["cifar100"].classes))
