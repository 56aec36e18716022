"""Save and load a network: `spec.json` describes it, `model.safetensors` has its weights.

Loading never executes anything in the files.
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
    """The content of a finished run's folder `model/`."""

    network: Network
    classes: tuple[str, ...]  # class names, in the order of the logits
    size: int  # the side in pixels of the images it was trained on


def read(folder: Path, *, trust: bool = False) -> Saved:
    """Read the folder `model/` of a finished run; for `trust` see `longtail.nn.build`."""
    files = ModelFolder(folder)
    if not files.is_complete:
        raise LongtailError(
            f"there is no trained network at {folder}: pass the --out folder of a finished run"
        )
    spec = read_document(files.spec, MODEL)
    return Saved(
        load_weights(build(spec["network"], trust=trust), files.weights),
        tuple(spec["classes"]),
        int(spec["size"]),
    )


def write(folder: Path, network: Network, *, classes: Sequence[str], size: int) -> None:
    """Write a network for `read`, each file atomically and the spec last."""
    files = ModelFolder(folder)
    with atomic_write(files.weights) as part:
        save_model(network, str(part))
    write_document(files.spec, {"network": network.spec, "classes": list(classes), "size": size})


def load_weights(network: Network, weights: Path) -> Network:
    """Load a network's weights from a file, which must have exactly its tensors."""
    if not weights.exists():
        raise LongtailError(
            f"the weights {weights} are missing: restore the file, or train the run again into"
            " another folder"
        )
    try:
        load_model(network, weights)
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"the weights in {weights} are incomplete, or not those of the network in"
            f" {ModelFolder(weights.parent).spec}: {reason}"
        ) from error
    return network
