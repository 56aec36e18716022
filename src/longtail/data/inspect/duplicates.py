"""The same picture twice: to the byte, or resized, recompressed, brightened; within splits, across
them, under two labels.

Pictures whose 64-bit hashes (`survey.perceptual_hash`) differ in at most 7 bits are found through
16-bit words: of the four words of such a pair one differs in at most one bit. Of these, pairs stay
whose shapes agree and whose 16 x 16 thumbnails are alike. What is left is decoded again and
compared in colour (`likeness`).

How alike is too alike depends on the data: two photographs that correlate by 0.98 are one, two dark
bodies on white need not be. So a pair is the same picture if it is much closer than either is to
its tenth nearest neighbour in the same data (after the ratio test of Lowe 2004 for matching
features). The bounds were chosen by looking at pairs among the 60,000 images of CIFAR-10, of which
some hundred are near duplicates, and among 30,336 images of plankton, where different animals look
alike by the thousand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from longtail.data.dataset import Dataset
from longtail.data.inspect.survey import blank, image, parts
from longtail.data.progress import Bar, map_threaded

RADIUS = 7  # bits
ALIKE = 0.95  # correlation of thumbnails, before the closer look
SAME = 0.96  # likeness at least
CLOSER = 0.12  # how far a pair is apart (1 - likeness) over how far its neighbours are
NEIGHBOUR = 10  # which neighbour: not the first, which may be a copy too
COPY = 0.998  # thumbnails that correlate more are copies, not neighbours
SAMPLE = 20_000  # images among which neighbours are looked for
BLOCK = 1 << 18  # pairs of hashes compared at a time
COMPARED = 4_000_000_000  # pairs of hashes at most
CHECKED = 200_000  # pairs of pictures at most
BITS = np.array([value.bit_count() for value in range(1 << 16)], dtype=np.uint8)
FLIPS = (0, *(1 << bit for bit in range(16)))


def duplicates(data: Dataset) -> dict[str, Any]:
    """Groups of surveyed images that are one picture, the gravest first: across splits under two
    labels, under two labels, across splits.

    `across` counts, for each pair of splits, the images of the later split that the earlier one has
    too; `leaked` the test images that training or validation has. `surplus` is how many images too
    many there are. `notes` say what was not searched."""
    looks = np.concatenate([part.looks for _, _, part in parts(data)])
    where = [(split, row, part) for split, own, part in parts(data) for row in range(len(own))]
    _, first, content = np.unique(looks["digest"], return_index=True, return_inverse=True)
    seen = first[~blank(looks[first])]

    def small(index: int) -> Image.Image:
        _, row, part = where[int(seen[index])]
        return part.small(row, 128)

    pairs, notes = near(looks[seen], small)
    joined, least = _joined(
        len(first), [(int(content[seen[a]]), int(content[seen[b]]), like) for a, b, like in pairs]
    )
    members: dict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(content.tolist()):
        members[joined[number]].append(index)
    groups: list[dict[str, Any]] = []
    for group, rows in members.items():
        if len(rows) > 1:
            images = [image(data, *where[index][:2]) for index in rows]
            groups.append(
                {
                    "exact": len(set(content[rows].tolist())) == 1,
                    "likeness": round(least.get(group, 1.0), 4),
                    "across": len({one["split"] for one in images}) > 1,
                    "conflict": len({one["class"] for one in images}) > 1,
                    "images": images,
                }
            )
    groups.sort(
        key=lambda own: (-2 * own["conflict"] - own["across"], not own["exact"], -own["likeness"])
    )

    def shared(later: str, *earlier: str) -> int:
        splits = ([one["split"] for one in own["images"]] for own in groups)
        return sum(own.count(later) for own in splits if set(own) & set(earlier))

    return {
        "exact": sum(bool(own["exact"]) for own in groups),
        "near": sum(not own["exact"] for own in groups),
        "surplus": sum(len(own["images"]) - 1 for own in groups),
        "conflicts": sum(bool(own["conflict"]) for own in groups),
        "across": {
            f"{earlier} and {later}": shared(later, earlier)
            for earlier, later in (("train", "val"), ("train", "test"), ("val", "test"))
        },
        "leaked": shared("test", "train", "val"),
        "groups": groups,
        "notes": notes,
    }


def near(
    looks: NDArray[np.void], small: Callable[[int], Image.Image]
) -> tuple[list[tuple[int, int, float]], list[str]]:
    """Pairs of rows that show the same picture, with their likeness, and what had to be left out.
    `small` gives a row's picture.
    """
    hashes = np.ascontiguousarray(looks["hash"])
    flips, notes = FLIPS, []
    if work(hashes, flips) > COMPARED:
        flips = FLIPS[:1]
        notes.append(
            f"so many of the {len(looks):,} images look alike that near duplicates were searched"
            " less closely: some are missing."
        )
        if work(hashes, flips) > COMPARED:
            return [], [
                f"so many of the {len(looks):,} images look alike that near duplicates were not"
                " searched."
            ]
    kept: list[NDArray[np.int64]] = []
    total = 0
    with Bar("comparing images", work(hashes, flips)) as bar:
        for a, b, done in close(hashes, flips):
            bar.advance(done)
            both = _alike(looks, a, b)
            kept.append(np.stack([a[both], b[both]], axis=1))
            total += len(kept[-1])
            if total > CHECKED:
                notes.append(
                    f"more than {CHECKED:,} pairs look alike: near duplicates beyond them were not"
                    " searched."
                )
                break
    candidates = (
        np.sort(np.concatenate(kept)[:CHECKED], axis=1)
        if kept
        else np.empty((0, 2), dtype=np.int64)
    )
    candidates = candidates[np.lexsort(candidates.T[::-1])]
    alike = np.zeros(len(candidates))
    look = lru_cache(maxsize=4096)(small)

    def confirm(index: int) -> None:
        a, b = candidates[index].tolist()
        alike[index] = likeness(look(a), look(b))

    map_threaded(confirm, range(len(candidates)), what="checking pairs")
    apart = 1 - neighbours(looks["thumb"], np.unique(candidates))
    rows = np.searchsorted(np.unique(candidates), candidates)
    same = np.flatnonzero((alike >= SAME) & (1 - alike <= CLOSER * apart[rows].min(1)))
    return [
        (int(a), int(b), float(like))
        for (a, b), like in zip(candidates[same], alike[same], strict=True)
    ], notes


def neighbours(thumbs: NDArray[np.uint8], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """How alike each of these rows is to its tenth nearest neighbour, by thumbnail, among (a fixed
    draw of) all; copies do not count.
    """
    drawn = np.random.default_rng(0).permutation(len(thumbs))[:SAMPLE]
    all_ = _unit(thumbs[drawn])
    found = np.zeros(len(rows))
    for start in range(0, len(rows), 1024):
        alike = _unit(thumbs[rows[start : start + 1024]]) @ all_.T
        alike[alike > COPY] = 0
        rank = min(NEIGHBOUR, len(drawn)) - 1
        found[start : start + 1024] = -np.partition(-alike, rank, axis=1)[:, rank]
    return found


def likeness(first: Image.Image, second: Image.Image) -> float:
    """How alike two pictures are in colour, 1 for the same: their correlation at half the sides of
    the
    smaller, 8 to 32 pixels.

    At half the size neither the way of resizing nor the noise of compression weighs much; what is
    drawn does."""
    width, height = (
        min(max(min(a, b) // 2, 8), 32) for a, b in zip(first.size, second.size, strict=True)
    )
    a, b = (
        np.asarray(own.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float64).ravel()
        for own in (first, second)
    )
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else float(not a.any() and not b.any())


def close(
    hashes: NDArray[np.uint16], flips: Sequence[int] = FLIPS
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """All pairs of rows whose hashes (N, 4) differ in at most 7 bits, each once, in blocks; with
    how many pairs were compared for them.
    """
    for word in range(4):
        order = np.argsort(hashes[:, word], kind="stable")
        ordered = hashes[order]
        whole, own = ordered.view(np.uint64)[:, 0], ordered[:, word].astype(np.int64)
        begin = np.searchsorted(own, np.arange((1 << 16) + 1))
        for flip in flips:
            other = own ^ flip
            start = begin[other] if flip else np.arange(len(own)) + 1
            length = np.where((own < other) | (flip == 0), begin[other + 1] - start, 0)
            for rows in _blocks(length):
                times = length[rows]
                b = np.arange(int(times.sum())) + np.repeat(
                    start[rows] - (np.cumsum(times) - times), times
                )
                near = np.flatnonzero(_bits(np.repeat(whole[rows], times) ^ whole[b]) <= RADIUS)
                a, b = np.repeat(rows, times)[near], b[near]
                # No earlier word has found this pair
                once = (BITS[ordered[a, :word] ^ ordered[b, :word]] > 1).all(1)
                yield order[a[once]], order[b[once]], int(times.sum())


def _bits(values: NDArray[np.uint64]) -> NDArray[np.uint8]:
    if hasattr(np, "bitwise_count"):  # since numpy 2
        return np.bitwise_count(values)
    total: NDArray[np.uint8] = BITS[values.view(np.uint16).reshape(-1, 4)].sum(1, dtype=np.uint8)
    return total


def work(hashes: NDArray[np.uint16], flips: Sequence[int] = FLIPS) -> int:
    """How many pairs `close` compares."""
    total, values = 0, np.arange(1 << 16)
    for word in range(4):
        counts = np.bincount(hashes[:, word], minlength=1 << 16)
        for flip in flips:
            total += int((counts * (counts[values ^ flip] if flip else counts - 1)).sum()) // 2
    return total


def _blocks(length: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    rows = np.flatnonzero(length)
    ends = np.cumsum(length[rows])
    done = 0
    while done < len(rows):
        reach = int(np.searchsorted(ends, (ends[done - 1] if done else 0) + BLOCK, side="right"))
        reach = max(reach, done + 1)
        yield rows[done:reach]
        done = reach


def _alike(
    looks: NDArray[np.void], a: NDArray[np.int64], b: NDArray[np.int64]
) -> NDArray[np.bool_]:
    width, height = (looks[side][a].astype(np.float64) for side in ("width", "height"))
    other_width, other_height = (looks[side][b].astype(np.float64) for side in ("width", "height"))
    least = np.minimum(np.minimum(width, height), np.minimum(other_width, other_height))
    # A resized side is rounded to a pixel
    shape = np.abs(np.log(width * other_height / (height * other_width))) <= 0.01 + 1 / least
    both = np.flatnonzero(shape)
    shape[both] = (_unit(looks["thumb"][a[both]]) * _unit(looks["thumb"][b[both]])).sum(1) >= ALIKE
    return shape


def _unit(thumbs: NDArray[np.uint8]) -> NDArray[np.float32]:
    rows = thumbs.reshape(len(thumbs), 256).astype(np.float32)
    rows -= rows.mean(1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return rows


def _joined(
    count: int, pairs: Sequence[tuple[int, int, float]]
) -> tuple[list[int], dict[int, float]]:
    """The group of each content, joined by pairs, and the least likeness that joined each group."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for a, b, _ in pairs:
        parent[root(a)] = root(b)
    least: dict[int, float] = {}
    for a, _, like in pairs:
        least[root(a)] = min(least.get(root(a), 1.0), like)
    return [root(node) for node in range(count)], least
