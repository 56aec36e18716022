"""Small procedural datasets, made in memory: 32x32 images of shapes, textures, styles and heights.

They need no download, so every task has a first line to type and a sanity check:

| name | classes | for |
|:--|:--|:--|
| `shapes-lt` | 10 shapes, from many images to few | long-tailed recognition |
| `shapes-domains` | 6 shapes in 4 styles, the column `domain` | domain generalisation, adaptation |
| `shapes-pairs` | 40 pairs of a texture and a shape, 16 of them unseen | compositional zero-shot |
| `shapes-attributes` | 24 described classes, 8 of them unseen | generalised zero-shot |

Position, size, colours and noise are random, with fixed seeds: everyone has the same images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.images.stores import ArrayImages
from longtail.data.request import Profile
from longtail.data.source import Rows, Source
from longtail.data.splits import (
    one_group,
    rank_groups,
    seen_groups,
    tail_counts,
    tail_rows,
)

SIDE = 32
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

# Whether a point is inside a shape; x and y are (N, SIDE, SIDE) in units of the shape's radius.
# Only sums, products and comparisons, for the same pixels on every machine.
SHAPES: Mapping[str, Callable[[Floats, Floats], Bools]] = {
    "disc": lambda x, y: x * x + y * y <= 0.9,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.8,
    "triangle": lambda x, y: (abs(x) <= (y + 0.95) * 0.55) & (y <= 0.8),
    "plus": lambda x, y: (np.minimum(abs(x), abs(y)) <= 0.3) & (np.maximum(abs(x), abs(y)) <= 0.95),
    "ring": lambda x, y: (x * x + y * y <= 1.0) & (x * x + y * y >= 0.35),
    "diamond": lambda x, y: abs(x) + abs(y) <= 1.1,
    "bar": lambda x, y: (abs(y) <= 0.35) & (abs(x) <= 1.0),
    "cross": lambda x, y: (abs(abs(x) - abs(y)) <= 0.35) & (np.maximum(abs(x), abs(y)) <= 0.9),
    "frame": lambda x, y: (
        (np.maximum(abs(x), abs(y)) <= 0.95) & (np.maximum(abs(x), abs(y)) >= 0.5)
    ),
    "moon": lambda x, y: (x * x + y * y <= 1.0) & (x * x + (y - 0.55) * (y - 0.55) > 0.6),
}
# Whether a pixel has the second colour; rows and columns are counted from a random corner.
TEXTURES: Mapping[str, Callable[[Ints, Ints], Bools]] = {
    "plain": lambda rows, columns: (rows + columns) < 0,
    "striped": lambda rows, columns: (rows + 0 * columns) % 4 < 2,
    "barred": lambda rows, columns: (columns + 0 * rows) % 4 < 2,
    "checked": lambda rows, columns: (rows // 3 + columns // 3) % 2 == 0,
    "dotted": lambda rows, columns: (rows % 4 < 2) & (columns % 4 < 2),
}
STYLES = ("cartoon", "night", "photo", "sketch")
HEIGHTS = ("high", "low")
UNSEEN_EACH = 4  # of shapes-attributes, in validation and as many others in test
LARGEST = 200  # training images of the largest class of shapes-lt


def shapes_lt(*, imbalance: float | None = None, profile: Profile = "exp") -> Source:
    """Ten shapes with 200 training images of the first down to 4 of the last (imbalance 50)."""
    names = tuple(SHAPES)
    ratio = 50 if imbalance is None else imbalance
    target = np.repeat(np.arange(len(names)), LARGEST)
    images = _draw(np.random.RandomState(1), shape=target)
    kept = tail_rows(target, tail_counts(LARGEST, len(names), imbalance=ratio, profile=profile))
    test = np.repeat(np.arange(len(names)), 30)
    splits = {
        "train": _rows("shapes-lt/train", images[kept], target[kept]),
        "test": _rows("shapes-lt/test", _draw(np.random.RandomState(2), shape=test), test),
    }
    groups = partial(rank_groups, cuts=(3, 4, 3))
    return Source("shapes-lt", names, splits, groups, size=SIDE)


def shapes_domains() -> Source:
    """Six shapes in four styles, 40 images of each: pass `--test-domain` to leave one style out."""
    names = tuple(SHAPES)[:6]
    grid = np.array([*product(range(len(names)), range(len(STYLES)))]).repeat(40, axis=0)
    target, domain = grid[:, 0], grid[:, 1]
    images = _draw(np.random.RandomState(3), shape=target, style=domain)
    rows = _rows("shapes-domains", images, target, domain=domain)
    return Source(
        "shapes-domains",
        names,
        {"train": rows},
        one_group,
        size=SIDE,
        categories={"domain": STYLES},
    )


def shapes_pairs() -> Source:
    """Forty pairs of a texture and a shape: 24 seen, 8 unseen of validation and 8 of test."""
    textures, shapes = tuple(TEXTURES), tuple(SHAPES)[:8]
    pairs = np.array([*product(range(len(textures)), range(len(shapes)))])
    # Along diagonals, so that each texture and each shape is seen in training with some others.
    kind = np.array(["train", "train", "val", "train", "test"])[(pairs[:, 0] + pairs[:, 1]) % 5]
    splits = _seen_and_unseen(
        "shapes-pairs",
        kind,
        seed=4,
        images=lambda random, target: _draw(
            random, shape=pairs[target, 1], texture=pairs[target, 0]
        ),
        columns=lambda target: {"attribute": pairs[target, 0], "object": pairs[target, 1]},
    )
    return Source(
        "shapes-pairs",
        tuple(f"{textures[a]} {shapes[o]}" for a, o in pairs.tolist()),
        splits,
        seen_groups,
        size=SIDE,
        categories={"attribute": textures, "object": shapes},
        class_attributes={"attribute": pairs[:, 0], "object": pairs[:, 1]},
    )


def shapes_attributes() -> Source:
    """24 classes described by shape, texture and height: 16 seen, 4 and 4 unseen.

    The class attribute `vector` (24, 9) has a one for each part that a class has.
    """
    shapes, textures = tuple(SHAPES)[:4], tuple(TEXTURES)[:3]
    parts = np.array([*product(range(4), range(3), range(2))])
    kind = np.full(len(parts), "train", dtype="<U5")
    unseen = np.random.RandomState(5).permutation(len(parts))[: 2 * UNSEEN_EACH]
    kind[unseen[:UNSEEN_EACH]], kind[unseen[UNSEEN_EACH:]] = "val", "test"
    vector = np.concatenate([np.eye(n)[parts[:, i]] for i, n in enumerate((4, 3, 2))], axis=1)
    splits = _seen_and_unseen(
        "shapes-attributes",
        kind,
        seed=6,
        images=lambda random, target: _draw(
            random, shape=parts[target, 0], texture=parts[target, 1], height=parts[target, 2]
        ),
    )
    return Source(
        "shapes-attributes",
        tuple(f"{textures[t]} {shapes[s]} {HEIGHTS[h]}" for s, t, h in parts.tolist()),
        splits,
        seen_groups,
        size=SIDE,
        class_attributes={"vector": vector.astype(np.float32)},
    )


def _seen_and_unseen(
    name: str,
    kind: NDArray[np.str_],
    *,
    seed: int,
    images: Callable[[np.random.RandomState, Ints], NDArray[np.uint8]],
    columns: Callable[[Ints], Mapping[str, Ints]] = lambda target: {},
) -> dict[str, Rows]:
    """Images of each split: training shows the seen classes; the others also their unseen ones."""
    splits = {}
    for number, (split, each) in enumerate({"train": 40, "val": 10, "test": 10}.items()):
        target = np.flatnonzero((kind == "train") | (kind == split)).repeat(each)
        random = np.random.RandomState(10 * seed + number)
        splits[split] = _rows(f"{name}/{split}", images(random, target), target, **columns(target))
    return splits


def _rows(name: str, images: NDArray[np.uint8], target: Ints, **columns: Ints) -> Rows:
    return Rows(
        ArrayImages(torch.from_numpy(images)),
        target,
        tuple(f"{name}/{row}" for row in range(len(target))),
        tuple(sha256(image.tobytes()).digest() for image in images),
        columns,
    )


def _draw(
    random: np.random.RandomState,
    *,
    shape: Ints,
    texture: Ints | None = None,
    style: Ints | None = None,
    height: Ints | None = None,
) -> NDArray[np.uint8]:
    """Images (N, 3, SIDE, SIDE) of shapes; textures, and places without heights, are random.

    Args:
        shape: (N,), indices into SHAPES.
        texture: (N,), indices into TEXTURES; random by default.
        style: (N,), indices into STYLES; a photo by default.
        height: (N,), indices into HEIGHTS; anywhere by default.
    """
    count = len(shape)

    def per_image(values: NDArray[Any]) -> NDArray[Any]:
        return values[:, None, None]

    if texture is None:
        texture = random.randint(len(TEXTURES), size=count)
    radius = per_image(random.uniform(7, 10, size=count))
    centre_x, centre_y = random.uniform(12, 20, size=(2, count))
    if height is not None:
        centre_y = random.uniform(10, 12, size=count) + 10 * height
        radius = radius * 0.9
    y, x = np.mgrid[:SIDE, :SIDE][:, None]
    inside = _choose(
        SHAPES, shape, (x - per_image(centre_x)) / radius, (y - per_image(centre_y)) / radius
    )
    corner_x, corner_y = random.randint(4, size=(2, count))
    marked = _choose(TEXTURES, texture, y + per_image(corner_y), x + per_image(corner_x))

    light = random.randint(150, 256, size=(count, 3))  # of the shape, of its texture
    dark = random.randint(0, 90, size=(count, 3))
    ground = random.randint(60, 190, size=(count, 3))
    noise = random.randint(-30, 31, size=(count, 3, SIDE, SIDE))
    edge = inside & ~_eroded(inside)
    images = np.empty((count, 3, SIDE, SIDE), dtype=np.int64)
    styles = np.full(count, STYLES.index("photo")) if style is None else style
    for number, name in enumerate(STYLES):
        rows = np.flatnonzero(styles == number)
        images[rows] = _render(
            name,
            inside=inside[rows, None],
            marked=marked[rows, None],
            edge=edge[rows, None],
            noise=noise[rows],
            colours=[part[rows, :, None, None] for part in (light, dark, ground)],
        )
    return images.clip(0, 255).astype(np.uint8)


def _render(
    style: str, *, inside: Bools, marked: Bools, edge: Bools, noise: Ints, colours: Sequence[Ints]
) -> Ints:
    """Colour the pixels (N, 3, SIDE, SIDE) of one style; masks are (N, 1, SIDE, SIDE)."""
    light, dark, ground = colours
    filled = np.where(marked, dark, light)
    if style == "photo":
        return np.where(inside, filled, ground) + noise
    if style == "cartoon":
        return np.where(edge, 0, np.where(inside, filled, 235))
    if style == "night":
        return np.where(inside, filled // 3, 10) + noise // 2
    grey = np.where(edge | (inside & marked), 40, 250)  # a sketch has lines and no colours
    return grey + noise // 3


def _choose(parts: Mapping[str, Callable[[Any, Any], Bools]], which: Ints, a: Any, b: Any) -> Bools:
    """Evaluate for each row the function that it names."""
    chosen = np.zeros((len(which), SIDE, SIDE), dtype=np.bool_)
    for number, function in enumerate(parts.values()):
        rows = np.flatnonzero(which == number)
        chosen[rows] = function(a[rows], b[rows])
    return chosen


def _eroded(inside: Bools) -> Bools:
    """Pixels whose four neighbours are inside too."""
    padded = np.pad(inside, ((0, 0), (1, 1), (1, 1)))
    return padded[:, :-2, 1:-1] & padded[:, 2:, 1:-1] & padded[:, 1:-1, :-2] & padded[:, 1:-1, 2:]


SHAPES_DATA: Mapping[str, Callable[[], Source]] = {
    "shapes-domains": shapes_domains,
    "shapes-pairs": shapes_pairs,
    "shapes-attributes": shapes_attributes,
}
