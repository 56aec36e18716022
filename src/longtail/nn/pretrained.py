"""Pretrained weights of timm models: whether they are here, how to fetch them without ever hanging,
and what they have learnt from.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBE = 5.0  # seconds until a hub that does not answer counts as absent
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
    """What timm says about a model's pretrained weights; the newest ones, where the name has no
    tag.
    """
    import timm  # here, because timm and torchvision take seconds to import

    return timm.models.get_pretrained_cfg(model)


def learnt_from(model: str) -> str:
    """The data that a timm model's weights have seen, read from their tag; the model's name, where
    the
    tag does not tell.

    >>> learnt_from("resnet18.a1_in1k"), learnt_from("vit_small_patch16_224.augreg_in21k_ft_in1k")
    ('ImageNet-1k', 'ImageNet-21k, ImageNet-1k')
    """
    named = [_DATA[word] for word in str(config(model).tag).split("_") if word in _DATA]
    return ", ".join(named) or f"timm:{model}"


def cached(model: str) -> Path | None:
    """The file of a timm model's weights in the cache of the Hugging Face hub or of torch, if it is
    there. Asks no network.
    """
    import torch
    from huggingface_hub import try_to_load_from_cache

    own = config(model)
    for name in _files(own):
        found = try_to_load_from_cache(own.hf_hub_id.partition("@")[0], name)
        if isinstance(found, str):
            return Path(found)
    if own.url:
        old = Path(torch.hub.get_dir()) / "checkpoints" / own.url.rpartition("/")[2]
        return old if old.exists() else None
    return None


def config_overlay(model: str) -> dict[str, Any]:
    """What timm needs to know to load cached weights without asking the hub whether there are newer
    ones.
    """
    found = cached(model)
    if found is None:
        return {}
    # The hub has every model in timm's own layout; only files that others published need another
    # reader.
    return {"file": str(found)} | (
        {"custom_load": False} if found.suffix in (".safetensors", ".bin") else {}
    )


def fetched(model: str, *, seconds: float) -> Path | None:
    """Fetch weights from the Hugging Face hub, if it answers within a few seconds and delivers
    within
    `seconds`.

    A child process does it, which is ended when its time is up: names that do not resolve and
    connections that never answer cannot hang this one. `HF_HUB_OFFLINE` forbids even asking."""
    own = config(model)
    if own.hf_hub_id is None or any(
        os.environ.get(name, "").upper() in _TRUE
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    ):
        return None
    repository, name = repr(own.hf_hub_id.partition("@")[0]), repr(_files(own)[0])
    ask = (
        "from huggingface_hub import get_hf_file_metadata, hf_hub_url;"
        f" get_hf_file_metadata(hf_hub_url({repository}, {name}))"
    )
    get = f"from huggingface_hub import hf_hub_download; hf_hub_download({repository}, {name})"
    if not (_succeeds(ask, PROBE) and _succeeds(get, seconds)):
        return None
    return cached(model)


def _files(own: Any) -> tuple[str, ...]:
    if own.hf_hub_id is None:
        return ()
    return (
        (own.hf_hub_filename,)
        if own.hf_hub_filename
        else ("model.safetensors", "pytorch_model.bin")
    )


def _succeeds(code: str, seconds: float) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
