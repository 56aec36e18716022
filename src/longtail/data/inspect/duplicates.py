"""Find exact and near duplicates (resized, recompressed, brightened) within and across splits.

Candidates are pairs whose 64-bit hashes (`survey.perceptual_hash`) differ in at most 7 bits. They
are chosen by 16-bit words: at least one of the four words of such a pair differs in at most 1 bit.
Candidates remain if their aspect ratios agree and their 16 x 16 thumbnails correlate. These are
decoded again and compared in colour (`likeness`).

The threshold depends on the data: two photographs with a correlation of 0.98 are duplicates, two
dark objects on white may not be. So a pair is a duplicate if it is much closer than either image is
to its tenth nearest neighbour in the same data, after the ratio test of Lowe 2004. The constants
were chosen on the 60,000 images of CIFAR-10, which has some hundred near duplicates, and on 30,336
images of plankton, where thousands of different animals are similar.
"""

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
ALIKE = 0.95  # least correlation of thumbnails, before decoding
SAME = 0.96  # least likeness of duplicates
CLOSER = 0.12  # largest ratio of a pair's distance (1 - likeness) to its neighbours'
NEIGHBOUR = 10  # rank of the neighbour; the first may be a copy too
COPY = 0.998  # correlation of thumbnails above which they are copies, not neighbours
SAMPLE = 20_000  # images among which neighbours are searched
BLOCK = 1 << 18  # pairs of hashes compared at a time
COMPARED = 4_000_000_000  # pairs of hashes at most
CHECKED = 200_000  # pairs of images at most
BITS = np.array([value.bit_count() for value in range(1 << 16)], dtype=np.uint8)
FLIPS = (0, *(1 << bit for bit in range(16)))


def duplicates(data: Dataset) -> dict[str, Any]:
    """Groups of duplicates among surveyed images, the most serious first.

    The order is: across splits under two labels, under two labels, across splits, others. `across`
    counts, for each pair of splits, the images of the later split that are also in the earlier;
    `leaked` counts the test images that are also in training or validation. `surplus` is the number
    of images beyond the first of each group. `notes` say what was not searched.
    """
    stats = np.concatenate([part.stats for _, _, part in parts(data)])
    where = [(split, row, part) for split, rows, part in parts(data) for row in range(len(rows))]
    _, first, content = np.unique(stats["digest"], return_index=True, return_inverse=True)
    distinct = first[~blank(stats[first])]

    def small(index: int) -> Image.Image:
        _, row, part = where[int(distinct[index])]
        return part.small(row, 128)

    pairs, notes = near(stats[distinct], small)
    group_of, least = _connected(
        len(first),
        [(int(content[distinct[a]]), int(content[distinct[b]]), like) for a, b, like in pairs],
    )
    members: dict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(content.tolist()):
        members[group_of[number]].append(index)
    groups: list[dict[str, Any]] = []
    for number, rows in members.items():
        if len(rows) > 1:
            images = [image(data, *where[index][:2]) for index in rows]
            groups.append(
                {
                    "exact": len(set(content[rows].tolist())) == 1,
                    "likeness": round(least.get(number, 1.0), 4),
                    "across": len({one["split"] for one in images}) > 1,
                    "conflict": len({one["class"] for one in images}) > 1,
                    "images": images,
                }
            )
    groups.sort(
        key=lambda group: (
            -2 * group["conflict"] - group["across"],
            not group["exact"],
            -group["likeness"],
        )
    )

    def shared(later: str, *earlier: str) -> int:
        splits = ([image["split"] for image in group["images"]] for group in groups)
        return sum(names.count(later) for names in splits if set(names) & set(earlier))

    return {
        "exact": sum(bool(group["exact"]) for group in groups),
        "near": sum(not group["exact"] for group in groups),
        "surplus": sum(len(group["images"]) - 1 for group in groups),
        "conflicts": sum(bool(group["conflict"]) for group in groups),
        "across": {
            f"{earlier} and {later}": shared(later, earlier)
            for earlier, later in (("train", "val"), ("train", "test"), ("val", "test"))
        },
        "leaked": shared("test", "train", "val"),
        "groups": groups,
        "notes": notes,
    }


def near(
    stats: NDArray[np.void], small: Callable[[int], Image.Image]
) -> tuple[list[tuple[int, int, float]], list[str]]:
    """Pairs of near duplicates (row, row, likeness), and notes on what was not searched.

    `small` returns a small image of a row.
    """
    hashes = np.ascontiguousarray(stats["hash"])
    flips, notes = FLIPS, []
    if work(hashes, flips) > COMPARED:
        flips = FLIPS[:1]
        notes.append(
            f"too many of the {len(stats):,} images are similar for a complete search: some near"
            " duplicates are missing."
        )
        if work(hashes, flips) > COMPARED:
            return [], [
                f"too many of the {len(stats):,} images are similar: near duplicates were not"
                " searched."
            ]
    kept: list[NDArray[np.int64]] = []
    total = 0
    with Bar("comparing images", work(hashes, flips)) as bar:
        for a, b, done in close(hashes, flips):
            bar.advance(done)
            both = _are_similar(stats, a, b)
            kept.append(np.stack([a[both], b[both]], axis=1))
            total += len(kept[-1])
            if total > CHECKED:
                notes.append(
                    f"more than {CHECKED:,} pairs are similar: near duplicates beyond them were not"
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
    cached_small = lru_cache(maxsize=4096)(small)

    def confirm(index: int) -> None:
        a, b = candidates[index].tolist()
        alike[index] = likeness(cached_small(a), cached_small(b))

    map_threaded(confirm, range(len(candidates)), what="checking pairs")
    apart = 1 - neighbours(stats["thumb"], np.unique(candidates))
    rows = np.searchsorted(np.unique(candidates), candidates)
    same = np.flatnonzero((alike >= SAME) & (1 - alike <= CLOSER * apart[rows].min(1)))
    return [
        (int(a), int(b), float(like))
        for (a, b), like in zip(candidates[same], alike[same], strict=True)
    ], notes


def neighbours(thumbs: NDArray[np.uint8], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Correlation of each row's thumbnail with that of its tenth nearest neighbour, (len(rows),).

    Neighbours are searched in a fixed sample of all rows; copies do not count.
    """
    sample = np.random.default_rng(0).permutation(len(thumbs))[:SAMPLE]
    all_ = _unit(thumbs[sample])
    result = np.zeros(len(rows))
    for start in range(0, len(rows), 1024):
        alike = _unit(thumbs[rows[start : start + 1024]]) @ all_.T
        alike[alike > COPY] = 0
        rank = min(NEIGHBOUR, len(sample)) - 1
        result[start : start + 1024] = -np.partition(-alike, rank, axis=1)[:, rank]
    return result


def likeness(first: Image.Image, second: Image.Image) -> float:
    """Correlation of two images in colour, at half the size of the smaller (8 to 32 pixels).

    At half the size, resampling and compression noise have little weight; the content has.
    """
    width, height = (
        min(max(min(a, b) // 2, 8), 32) for a, b in zip(first.size, second.size, strict=True)
    )
    a, b = (
        np.asarray(
            side.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float64
        ).ravel()
        for side in (first, second)
    )
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else float(not a.any() and not b.any())


def close(
    hashes: NDArray[np.uint16], flips: Sequence[int] = FLIPS
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """All pairs of rows whose hashes (N, 4) differ in at most 7 bits, each once.

    Yields blocks (rows a, rows b, number of pairs compared).
    """
    for word in range(4):
        order = np.argsort(hashes[:, word], kind="stable")
        ordered = hashes[order]
        bits, key = ordered.view(np.uint64)[:, 0], ordered[:, word].astype(np.int64)
        begin = np.searchsorted(key, np.arange((1 << 16) + 1))
        for flip in flips:
            other = key ^ flip
            start = begin[other] if flip else np.arange(len(key)) + 1
            length = np.where((key < other) | (flip == 0), begin[other + 1] - start, 0)
            for rows in _blocks(length):
                times = length[rows]
                b = np.arange(int(times.sum())) + np.repeat(
                    start[rows] - (np.cumsum(times) - times), times
                )
                near = np.flatnonzero(_bits(np.repeat(bits[rows], times) ^ bits[b]) <= RADIUS)
                a, b = np.repeat(rows, times)[near], b[near]
                # Keep a pair only if no earlier word has yielded it
                once = (BITS[ordered[a, :word] ^ ordered[b, :word]] > 1).all(1)
                yield order[a[once]], order[b[once]], int(times.sum())


def _bits(values: NDArray[np.uint64]) -> NDArray[np.uint8]:
    if hasattr(np, "bitwise_count"):  # since numpy 2
        return np.bitwise_count(values)
    total: NDArray[np.uint8] = BITS[values.view(np.uint16).reshape(-1, 4)].sum(1, dtype=np.uint8)
    return total


def work(hashes: NDArray[np.uint16], flips: Sequence[int] = FLIPS) -> int:
    """The number of pairs that `close` compares."""
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


def _are_similar(
    stats: NDArray[np.void], a: NDArray[np.int64], b: NDArray[np.int64]
) -> NDArray[np.bool_]:
    width, height = (stats[side][a].astype(np.float64) for side in ("width", "height"))
    other_width, other_height = (stats[side][b].astype(np.float64) for side in ("width", "height"))
    least = np.minimum(np.minimum(width, height), np.minimum(other_width, other_height))
    # The tolerance covers the rounding of resized sides to pixels
    shape = np.abs(np.log(width * other_height / (height * other_width))) <= 0.01 + 1 / least
    both = np.flatnonzero(shape)
    shape[both] = (_unit(stats["thumb"][a[both]]) * _unit(stats["thumb"][b[both]])).sum(1) >= ALIKE
    return shape


def _unit(thumbs: NDArray[np.uint8]) -> NDArray[np.float32]:
    rows = thumbs.reshape(len(thumbs), 256).astype(np.float32)
    rows -= rows.mean(1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return rows


def _connected(
    count: int, pairs: Sequence[tuple[int, int, float]]
) -> tuple[list[int], dict[int, float]]:
    """Connected components of pairs: the group of each node, and each group's least likeness."""
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
