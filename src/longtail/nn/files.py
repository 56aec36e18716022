"""A network in a folder: `spec.json` says how to build it, `model.safetensors` holds its weights.
Nothing in the files is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from longtail.errors import LongtailError
from longtail.nn.networks import Network, build
from longtail.records.documents import read_document, write_document
from longtail.records.files import atomic_write
from longtail.records.kinds import MODEL
from longtail.records.layout import ModelFolder


class Saved(NamedTuple):
    """What a finished run left in its folder `model/`."""

    network: Network
    classes: tuple[str, ...]  # names, in the order of the logits
    size: int  # pixels: the side of the images it was trained on


def read(folder: Path, *, trust: bool = False) -> Saved:
    """Read a finished run's folder `model/`; `trust` is that of `longtail.nn.build`."""
    files = ModelFolder(folder)
    if not files.is_complete:
        raise LongtailError(
            f"expected a finished run, got no network at {folder}: pass the folder that a run was"
            " given as --out"
        )
    spec = read_document(files.spec, MODEL)
    return Saved(
        filled(build(spec["network"], trust=trust), files.weights),
        tuple(spec["classes"]),
        int(spec["size"]),
    )


def write(folder: Path, network: Network, *, classes: Sequence[str], size: int) -> None:
    """Write a network so that `read` finds it: the weights first, each file whole or not there."""
    files = ModelFolder(folder)
    with atomic_write(files.weights) as part:
        save_model(network, str(part))
    write_document(files.spec, {"network": network.spec, "classes": list(classes), "size": size})


def filled(network: Network, weights: Path) -> Network:
    """Give a network the weights in a file, which must be all of its own and no others."""
    if not weights.exists():
        raise LongtailError(
            f"expected the weights of the run, got nothing at {weights}: train it again into"
            " another folder"
        )
    try:
        load_model(network, weights)
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"expected whole weights of the network in {ModelFolder(weights.parent).spec}, got"
            f" others or a part in {weights}: {reason}"
        ) from error
    return network
