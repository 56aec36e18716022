"""Compute features of a dataset with a frozen network, as data for any recipe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as save_tensors

from longtail.core import Predict
from longtail.data.assembly import as_split, evaluated_crop
from longtail.data.images.reading import read
from longtail.data.loader import EvalLoader
from longtail.data.open import find_all
from longtail.data.progress import Bar
from longtail.data.readers.features import (
    ATTRIBUTE,
    BACKBONE,
    CATEGORIES,
    COLUMN,
    PRETRAINING,
    WEIGHTS,
    features,
    write_features,
)
from longtail.data.request import DataRequest, data_flags
from longtail.data.source import Source
from longtail.data.splits import split_hash
from longtail.engine.machine import choose
from longtail.engine.predicting import predictor
from longtail.errors import LongtailError
from longtail.naming import unknown
from longtail.nn.networks import Classifier, Network, build, size_of, takes_vectors
from longtail.nn.pretrained import pretraining_data
from longtail.records.arrays import read_arrays
from longtail.records.files import atomic_write
from longtail.records.layout import RunFolder, features_part, features_parts
from longtail.runs.identity import check_outside
from longtail.runs.images import Preprocessing
from longtail.runs.inference import BATCH
from longtail.runs.model import load

CHUNK = 16
"""Batches after which features are saved: a kill loses at most these."""

UNUSED = ("protocol", "split_seed", "mirror", "scoring", "word_vectors", "pairs")
"""Data flags that apply when features are opened, not when they are computed."""


@dataclass(frozen=True)
class Features:
    """A file of features, and their number."""

    path: Path
    rows: int
    dim: int
    pretraining: str | None
    fresh: bool = True  # False: it was written before, and nothing was computed


def embed(
    data: str | Path,
    network: str | Path,
    out: str | Path,
    *,
    weights: str | Path | None = None,
    pretraining: str | None = None,
    size: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    workers: int = 0,
    trust: bool = False,
    **flags: Any,
) -> Features:
    """Write the features of all images of a dataset as an .npz, which is a dataset itself.

    Images are preprocessed as in evaluation. The file also has the network with its weights, so
    that a run that is trained on it can classify images. The same call again continues after a
    kill. What is held out is decided when the features are opened. `longtail embed` is this
    function.

    Args:
        data: A name or a path, as `longtail.data.open.open_data` takes it.
        network: "timm:NAME" or another network of `longtail list`, or the folder of a finished run,
            of which the features before the head are taken.
        out: The .npz file to write.
        weights: A file with weights of a timm network in timm's layout, "timm" for its pretrained
            ones (the default for timm:NAME) or "random".
        pretraining: What the weights were trained on, for the rows of all runs on these features;
            as timm or the run states it, unless given.
        size: Side of the images in pixels; that of the network, unless given.
        device: Where to compute.
        threads: Threads that compute.
        workers: Processes that decode images.
        trust: Whether to import code outside longtail that the network names.
        **flags: The fields of `DataRequest`. The test domain "all" reads the folders of a folder as
            domains, and leaves none of them out.
    """
    for name in flags:
        if name not in data_flags():
            raise unknown("data flag", name, data_flags())
    request, out = DataRequest.from_flags(data, flags), Path(out)
    for name in UNUSED:
        if request.flags()[name] != data_flags()[name].default:
            raise LongtailError(
                f"--{name.replace('_', '-')} has no effect on features: pass it to longtail train,"
                " which decides what is held out and how it is scored"
            )
    if out.suffix != ".npz":
        raise LongtailError(f"features are written as an .npz file: name it so, got {out}")
    check_outside(out, str(data))
    listed = find_all(request)
    if listed.splits["train"].inputs.vectors() is not None:
        raise LongtailError(f"{data} has feature vectors already: give images")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # random weights must be the same when the command is repeated
        frozen, preprocessing, learnt = _backbone(network, weights=weights, size=size, trust=trust)
    if preprocessing is not None and request.geometry not in (None, preprocessing.geometry):
        raise LongtailError(
            f"--geometry {request.geometry} is not that of the run {network}, which is"
            f" {preprocessing.geometry}: remove it"
        )
    source = read(
        listed,
        size=size_of(frozen.spec) if preprocessing is None else preprocessing.stored,
        geometry=request.geometry if preprocessing is None else preprocessing.geometry,
        on_bad_image=request.on_bad_image,
    )
    if preprocessing is None:
        pixels = size_of(frozen.spec)
        preprocessing = Preprocessing(pixels, source.geometry, pixels, evaluated_crop(source))
    stored = save_tensors(
        {name: tensor.contiguous().clone() for name, tensor in frozen.state_dict().items()}
    )
    about: dict[str, Any] = {
        "network": frozen.spec,
        "size": preprocessing.size,
        "fit": preprocessing.to_spec(),
        "pretraining": learnt if pretraining is None else pretraining,
        "weights": sha256(stored).hexdigest(),
        "data": split_hash(
            source.splits, categories=source.categories, class_attributes=source.class_attributes
        ),
    }
    described = json.dumps(about)
    if out.exists():
        return _written(out, described)
    machine = choose(device=device, precision="fp32", threads=threads, workers=workers)
    machine.configure()
    machine.place_module(frozen.eval().requires_grad_(False))
    parts = features_parts(out, sha256(described.encode()).hexdigest())
    predict = predictor(lambda image: {"features": frozen(image)}, machine)
    vectors = []
    with Bar("computing features", sum(map(len, source.splits.values()))) as bar:
        for name, part_rows in source.splits.items():
            split = as_split(part_rows, preprocessing.crop)
            loader = EvalLoader(split, size=preprocessing.size, batch=BATCH, workers=workers)
            for part in _chunks(loader, predict, parts, name):
                vectors.append(part)
                bar.advance(len(part))
    arrays = _arrays(source, np.concatenate(vectors))
    arrays |= {
        PRETRAINING: np.array(about["pretraining"] or ""),
        BACKBONE: np.array(described),
        WEIGHTS: np.frombuffer(stored, np.uint8),
    }
    write_features(out, arrays)
    shutil.rmtree(parts)
    rows, dim = arrays["features"].shape
    return Features(out, rows, dim, about["pretraining"])


def _backbone(
    network: str | Path, *, weights: str | Path | None, size: int | None, trust: bool
) -> tuple[Network, Preprocessing | None, str | None]:
    """The network, how it takes images if a run decides that, and what it was trained on."""
    name = str(network)
    if RunFolder(Path(name)).is_finished:
        if weights is not None or size is not None:
            flag = "--size" if weights is None else "--weights"
            raise LongtailError(f"{flag} has no effect with the network of a run: remove it")
        loaded = load(name, device="cpu", trust=trust)
        if not isinstance(loaded.network, Classifier) or takes_vectors(loaded.network):
            raise LongtailError(
                f"the run {name} was trained on feature vectors without their backbone: give a run"
                " that takes images"
            )
        row = loaded.row
        trained = f"{row['data']['name']} ({row['recipe']}, seed {row['seed']})"
        before = [row["pretraining"]] if row["pretraining"] else []
        return loaded.network.network, loaded.preprocessing, ", ".join([*before, trained])
    if Path(name).is_dir():
        raise LongtailError(f"expected the folder of a finished run, got {name}, which has no row")
    keywords: dict[str, Any] = {"name": name} | ({} if size is None else {"size": size})
    if not name.startswith("timm:"):
        built = build(keywords, trust=trust)
        if weights != "random":
            raise LongtailError(
                f"{name} has no pretrained weights: give the folder of a finished run or timm:NAME,"
                " or pass --weights random for features of a random network"
            )
        return built, None, None
    if weights == "random":
        return build(keywords), None, None
    if weights in (None, "timm"):
        return (
            build(keywords | {"pretrained": True}),
            None,
            pretraining_data(name.removeprefix("timm:")),
        )
    return build(keywords | {"pretrained": str(weights)}), None, f"weights of {Path(weights).name}"


def _chunks(
    loader: EvalLoader, predict: Predict, parts: Path, split: str
) -> Iterator[NDArray[np.float32]]:
    """The features of a split, in parts of which each is saved before the next is computed."""
    for start in range(0, len(loader), CHUNK):
        path = features_part(parts, split, start)
        if not path.exists():
            batches = islice(loader.epoch(start=start), CHUNK)
            rows = np.concatenate(
                [predict(batch["image"])["features"].numpy() for batch in batches]
            )
            if broken := int((~np.isfinite(rows)).any(axis=1).sum()):
                raise LongtailError(
                    f"the network's features are not finite for {broken} images: use another one"
                )
            parts.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part, part.open("wb") as file:
                np.save(file, rows)
        yield _part(path)


def _part(path: Path) -> NDArray[np.float32]:
    try:
        rows: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise LongtailError(
            f"the features of an earlier command in {path} cannot be read ({error}): delete"
            f" {path.parent}"
        ) from error
    return rows


def _arrays(source: Source, vectors: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """The arrays of the file, but for the backbone."""
    splits = [*source.splits.values()]
    names = [name for name in splits[0].columns if all(name in rows.columns for rows in splits)]
    return {
        "features": vectors,
        "target": np.concatenate([rows.target for rows in splits]),
        "split": np.repeat([*source.splits], [len(rows) for rows in splits]),
        "ids": np.array([name for rows in splits for name in rows.ids]),
        "classes": np.array(source.classes),
        **{
            f"{COLUMN}{name}": np.concatenate([rows.columns[name] for rows in splits])
            for name in names
        },
        **{f"{ATTRIBUTE}{name}": values for name, values in source.class_attributes.items()},
        **{
            f"{CATEGORIES}{name}": np.array(words)
            for name, words in source.categories.items()
            if name in names or name in source.class_attributes
        },
    }


def _written(out: Path, described: str) -> Features:
    """What a file has that was written before; refuse one of another request."""
    arrays = read_arrays(out, repair="choose another --out, or delete it", skip=(WEIGHTS,))
    if str(arrays.get(BACKBONE)) != described:
        raise LongtailError(
            f"{out} has features of other images or of another network: choose another --out, or"
            " delete it"
        )
    source = features(out)
    rows = sum(map(len, source.splits.values()))
    assert source.size is not None
    return Features(out, rows, source.size, source.pretraining, fresh=False)
