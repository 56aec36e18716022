"""Pretrained weights of timm models: find them in the cache, download them, name their data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from longtail.errors import LongtailError, torch_reason

if TYPE_CHECKING:
    from torch import Tensor, nn

PROBE = 5.0  # seconds to wait for the hub before it counts as unreachable
_TRUE = {"1", "ON", "YES", "TRUE"}
_DATA = {
    "in1k": "ImageNet-1k",
    "in12k": "ImageNet-12k",
    "in21k": "ImageNet-21k",
    "in22k": "ImageNet-22k",
    "inat21": "iNaturalist 2021",
    "laion400m": "LAION-400M",
    "laion2b": "LAION-2B",
    "datacomp1b": "DataComp-1B",
    "webli": "WebLI",
    "openai": "OpenAI's CLIP data",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
}


def config(model: str) -> Any:
    """timm's configuration of a model's pretrained weights; the default ones without a tag."""
    import timm  # here, because timm and torchvision take seconds to import

    return timm.models.get_pretrained_cfg(model)


def pretraining_data(model: str) -> str:
    """The data a timm model was trained on, from the tag of its weights; else the model's name.

    >>> pretraining_data("vit_small_patch16_224.augreg_in21k_ft_in1k")
    'ImageNet-21k, ImageNet-1k'
    """
    named = [_DATA[word] for word in str(config(model).tag).split("_") if word in _DATA]
    return ", ".join(named) or f"timm:{model}"


def cached(model: str) -> Path | None:
    """The cached file of a timm model's weights (Hugging Face hub or torch), or None.

    It never uses the network.
    """
    import torch
    from huggingface_hub import try_to_load_from_cache

    source = config(model)
    for name in _files(source):
        path = try_to_load_from_cache(source.hf_hub_id.partition("@")[0], name)
        if isinstance(path, str):
            return Path(path)
    if source.url:
        old = Path(torch.hub.get_dir()) / "checkpoints" / source.url.rpartition("/")[2]
        return old if old.exists() else None
    return None


def config_overlay(model: str) -> dict[str, Any]:
    """The `pretrained_cfg_overlay` that makes timm load cached weights without using the hub."""
    path = cached(model)
    if path is None:
        return {}
    # The hub has every model in timm's layout; only files from other publishers need a converter.
    return {"file": str(path)} | (
        {"custom_load": False} if path.suffix in (".safetensors", ".bin") else {}
    )


def file_overlay(path: str) -> dict[str, Any]:
    """The `pretrained_cfg_overlay` that makes timm load weights from a file, without the hub."""
    _weights(path)  # refuses what is no file of weights
    return {"file": path, "custom_load": False}


def check_complete(path: str, body: nn.Module, model: str) -> None:
    """Refuse a file that lacks weights of a timm model: timm would leave them random."""
    if missing := sorted({*body.state_dict()} - {*_weights(path)}):
        raise LongtailError(
            f"the weights in {path} are not those of {model}: {len(missing)} tensors are missing,"
            f" such as {missing[0]}. Use a file in timm's layout, as model.state_dict() of timm"
        )


def _weights(path: str) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .pth or .bin file; nothing in it is executed."""
    from timm.models import load_state_dict

    if not Path(path).is_file():
        raise LongtailError(f"expected a file of weights, got none at {path}")
    try:
        state: dict[str, Tensor] = load_state_dict(path, weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, AttributeError) as error:
        raise LongtailError(
            f"the weights in {path} cannot be read ({torch_reason(error)}): use a"
            " .safetensors file, or a .pth file of a state dict"
        ) from error
    return state


def fetched(model: str, *, seconds: float) -> Path | None:
    """Download weights from the Hugging Face hub, within `seconds`; None if that fails.

    A child process does it and is ended when its time is up, so that an unreachable hub cannot
    block this process. Nothing is tried if `HF_HUB_OFFLINE` is set.
    """
    source = config(model)
    if source.hf_hub_id is None or any(
        os.environ.get(name, "").upper() in _TRUE
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    ):
        return None
    repository, name = repr(source.hf_hub_id.partition("@")[0]), repr(_files(source)[0])
    probe = (
        "from huggingface_hub import get_hf_file_metadata, hf_hub_url;"
        f" get_hf_file_metadata(hf_hub_url({repository}, {name}))"
    )
    download = f"from huggingface_hub import hf_hub_download; hf_hub_download({repository}, {name})"
    if not (_succeeds(probe, PROBE) and _succeeds(download, seconds)):
        return None
    return cached(model)


def _files(source: Any) -> tuple[str, ...]:
    if source.hf_hub_id is None:
        return ()
    return (
        (source.hf_hub_filename,)
        if source.hf_hub_filename
        else ("model.safetensors", "pytorch_model.bin")
    )


def _succeeds(code: str, seconds: float) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
