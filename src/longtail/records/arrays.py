"""Numpy archives (.npz), read without executing anything and without trusting their sizes."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.files import check_regular

LIMIT = 8_000_000_000  # bytes that the arrays of one file may take in memory


def read_arrays(path: Path, *, repair: str, skip: Collection[str] = ()) -> dict[str, NDArray[Any]]:
    """Read the arrays of an .npz file but those to skip.

    An error ends with `repair`, what a person can do.
    """
    try:
        check_regular(path, limit=LIMIT)
        with path.open("rb") as file:
            _check_sizes(file)
            file.seek(0)
            archive = np.load(file, allow_pickle=False)
            return {name: archive[name] for name in archive.files if name not in skip}
    except FileNotFoundError:
        raise LongtailError(f"{path} is missing: {repair}") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError) as error:
        reason = str(error) or "it is empty"
        raise LongtailError(
            f"expected arrays, got something else or a part of them in {path} ({reason}): {repair}"
        ) from error
    # Decompressing and parsing headers fail with many types
    except (AttributeError, IndexError, KeyError, NotImplementedError, TypeError) as error:
        raise LongtailError(
            f"expected arrays, got something else in {path} ({type(error).__name__}): {repair}"
        ) from error


def _check_sizes(file: BinaryIO) -> None:
    """Compare the sizes that arrays claim with those of their members, before any is loaded."""
    total = 0
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read_header = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read_header(stream)
                size = math.prod(shape) * dtype.itemsize
                if dtype.hasobject or size != member.file_size - stream.tell():
                    raise ValueError(
                        f"{member.filename} claims {size / 1e9:,.1f} GB of {dtype}, but has"
                        f" {member.file_size / 1e9:,.1f} GB"
                    )
                total += size
    if total > LIMIT:
        raise ValueError(
            f"{total / 1e9:,.1f} GB of arrays are more than the limit of {LIMIT / 1e9:,.0f} GB"
        )
