"""Save and load a network: `spec.json` describes it, `model.safetensors` has its weights.

Loading never executes anything in the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from longtail.errors import LongtailError
from longtail.nn.networks import Network, build
from longtail.records.documents import read_document, write_document
from longtail.records.files import WEIGHTS_LIMIT, atomic_write, check_regular
from longtail.records.kinds import MODEL
from longtail.records.layout import ModelFolder

SMALL = 1 << 28  # bytes of a network that is built whatever its file of weights has
SPARE = 4  # times as much as that file, for parameters that are replaced while it is built


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
        load_weights(build_saved(spec["network"], files.weights, trust=trust), files.weights),
        tuple(spec["classes"]),
        int(spec["size"]),
    )


def write(folder: Path, network: Network, *, classes: Sequence[str], size: int) -> None:
    """Write a network for `read`, each file atomically and the spec last."""
    files = ModelFolder(folder)
    with atomic_write(files.weights) as part:
        save_model(network, str(part))
    write_document(files.spec, {"network": network.spec, "classes": list(classes), "size": size})


def build_saved(spec: Mapping[str, Any], weights: Path, *, trust: bool = False) -> Network:
    """Build a network from a spec in a file, but no larger one than its weights are."""
    limit = max(SMALL, SPARE * weights.stat().st_size) if weights.exists() else SMALL
    total = 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total
        total += 0 if parameter is None else parameter.numel() * parameter.element_size()
        if total > limit:
            raise ValueError(f"it has more parameters than {weights}")

    handle = register_module_parameter_registration_hook(add)
    try:
        return build(spec, trust=trust)
    except LongtailError:
        raise
    # What a spec of other types or numbers raises; with trust it may be a defect of custom code
    except (LookupError, AttributeError, RuntimeError, TypeError, ValueError, ArithmeticError) as e:
        if trust:
            raise
        raise LongtailError(
            f"the spec of the network with the weights {weights} cannot be built"
            f" ({type(e).__name__}: {e}): restore the file, or train the run again"
        ) from e
    finally:
        handle.remove()


def load_weights(network: Network, weights: Path) -> Network:
    """Load a network's weights from a file, which must have exactly its tensors."""
    if not weights.exists():
        raise LongtailError(
            f"the weights {weights} are missing: restore the file, or train the run again into"
            " another folder"
        )
    check_regular(weights, limit=WEIGHTS_LIMIT)
    try:
        load_model(network, weights)
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"the weights in {weights} are incomplete, or not those of the network in"
            f" {ModelFolder(weights.parent).spec}: {reason}"
        ) from error
    return network
