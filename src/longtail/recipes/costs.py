"""What a published row costs on a GPU, estimated from the operations of its networks.

Images x epochs x operations of one image, over a share of the peak of the GPU. The operations are
in `data/flops.toml`, counted by benchmarks/network_flops.py; importing this needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from longtail.recipes.data_files import read_toml
from longtail.recipes.published import Published, published, train_images

FILE = Path(__file__).parent / "data" / "flops.toml"
PEAK = {"A100": 312.0, "A5000": 111.1, "RTX 3090": 71.2}
"""Teraflop a second of tensor cores in half precision, dense, as NVIDIA states them."""
SHARE = 0.2  # of the peak
LONG_TAILED = {"cifar10-lt", "cifar100-lt", "places-lt", "inaturalist18"}
LONG_TAILED |= {"imagenet-lt", "imagenet-bal"}
# A backward pass has about twice the operations of a forward pass.
TRAINING, FORWARD = 3.0, 1.0


@dataclass(frozen=True)
class Part:
    """One network of a row: its passes through how many images, in forward passes of one image."""

    network: str
    size: int
    passes: float
    keywords: Mapping[str, Any] = field(default_factory=dict)
    decoder: tuple[int, int, int] | None = None  # width, depth and heads of a masked autoencoder

    @property
    def key(self) -> str:
        """The name of its operations in `data/flops.toml`."""
        more = "".join(f", {name} {value}" for name, value in self.keywords.items())
        decoder = "" if self.decoder is None else ", masked, decoder {}x{}x{}".format(*self.decoder)
        return f"{self.network} at {self.size}{more}{decoder}"


def parts_of(row: Published) -> list[Part]:
    """The networks of one run of a row, without the run that it begins with.

    Empty for our own rows, and for other tasks than long-tailed recognition.
    """
    ours = row.source.startswith("our own")
    return [] if ours or row.data not in LONG_TAILED else list(_parts(row))


def _parts(row: Published) -> Iterator[Part]:
    keywords = row.all_keywords(dict.fromkeys(row.needed_keywords, "given"))
    images = train_images()[row.data, row.imbalance]
    shown = images * keywords["epochs"]
    network, size = keywords["network"], _size(row, keywords)
    passes = TRAINING * (2 if keywords.get("rho") else 1)  # SAM has two passes
    if row.recipe == "ride":
        yield Part(f"{network}_experts", size, passes * shown, {"experts": keywords["experts"]})
        return
    if row.recipe in ("deit_lt", "deit"):
        yield Part(network, size, TRAINING * shown, {"pool": "tokens"})
        yield from _teacher(row, keywords, shown)
        return
    if row.recipe == "paco":  # the momentum encoder sees the other view
        yield Part(network, size, (passes + FORWARD * (2 if keywords["rho"] else 1)) * shown)
        return
    if row.recipe == "livt" and "weights" not in row.needed_keywords:
        decoder = tuple(keywords[f"decoder_{name}"] for name in ("width", "depth", "heads"))
        before = images * keywords["pretrain_epochs"]
        small = keywords["pretrain_size"] or size
        yield Part(network, small, TRAINING * before, {"pool": "avg"}, decoder)
    if keywords.get("features") == "frozen":
        passes = FORWARD
    if row.recipe == "vit_crt":
        shown += images * keywords["retrain_epochs"] / TRAINING
    yield Part(network, size, passes * shown)


def _teacher(row: Published, keywords: Mapping[str, Any], shown: float) -> Iterator[Part]:
    """The teacher, which labels every image; and its training, where it is part of the run."""
    if "teacher" in row.begins_with:
        first = published()[row.begins_with["teacher"]]
        given = first.all_keywords(dict.fromkeys(first.needed_keywords, "given"))
        yield Part(given["network"], _size(first, given), FORWARD * shown)
    elif "teacher" not in row.needs:
        small = keywords.get("teacher_size") or 32
        images = train_images()[row.data, row.imbalance]
        passes = TRAINING * images * keywords["teacher_epochs"] + FORWARD * shown
        yield Part(keywords["teacher_network"], small, passes)


def _size(row: Published, keywords: Mapping[str, Any]) -> int:
    return int(keywords["size"] or (32 if row.data.startswith("cifar") else 224))


@cache
def gigaflops() -> dict[str, float]:
    """Billions of operations of one image, forward, by the key of a part."""
    return {key: float(value) for key, value in read_toml(FILE)["gigaflop"].items()}


def hours(row: Published, gpu: str = "A100") -> float | None:
    """Hours of one run of a row on one GPU at `SHARE` of its peak, or None if it was not counted.

    >>> round(hours(published()["cifar10-lt-deit-lt-paco"], "RTX 3090") / 2)  # on two: 15
    15
    """
    parts = parts_of(row)
    if not parts or any(part.key not in gigaflops() for part in parts):
        return None
    work = sum(part.passes * gigaflops()[part.key] for part in parts)
    return work / (SHARE * PEAK[gpu] * 1000 * 3600)


def total_hours(rows: Iterable[Published]) -> float | None:
    """Hours of these rows with all their seeds on one A100, or None if none was counted."""
    known = [len(row.seeds) * own for row in rows if (own := hours(row)) is not None]
    return sum(known) if known else None
