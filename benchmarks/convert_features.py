"""Convert a file of features with the names of images into a dataset of features.

    python benchmarks/convert_features.py SOURCE.npz OUT.npz --pretraining ImageNet-1k

SOURCE has `features` (N, D), perhaps as uint8 with `scale` (D,), and `names` such as CLASS/FILE,
DOMAIN/CLASS/FILE or DOMAIN/images/CLASS/FILE. OUT is what `longtail train --data OUT.npz --network
vectors` takes, with a column `domain` where the names have one.
"""

from __future__ import annotations

import argparse
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.readers.features import write_features
from longtail.errors import LongtailError


def converted(source: Path, *, pretraining: str) -> dict[str, NDArray[Any]]:
    """The arrays of a features file.

    Raises if a name has no class, or if only some names have a domain.
    """
    with np.load(source, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if missing := sorted({"features", "names"} - {*arrays}):
        raise LongtailError(f"{source}: expected the arrays features and names, missing {missing}")
    folders = [PurePosixPath(name).parts[:-1] for name in arrays["names"].tolist()]
    depths = {len(parts) for parts in folders}
    if min(depths) < 1 or (1 in depths and len(depths) > 1):
        raise LongtailError(f"{source}: expected names such as CLASS/FILE or DOMAIN/CLASS/FILE")
    classes, target = np.unique([parts[-1] for parts in folders], return_inverse=True)
    result = {
        "features": arrays["features"],
        "target": target,
        "classes": classes,
        "ids": arrays["names"],
        "pretraining": np.array(pretraining),
    }
    if "scale" in arrays:
        result["scale"] = arrays["scale"]
    if 1 not in depths:
        result["column.domain"] = np.array([parts[0] for parts in folders])
    return result


def main() -> None:
    """Convert one file."""
    parser = argparse.ArgumentParser(description="Convert features with names into a dataset.")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pretraining", required=True)
    given = parser.parse_args()
    write_features(given.out, converted(given.source, pretraining=given.pretraining))


if __name__ == "__main__":
    main()
