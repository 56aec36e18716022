"""Any timm model as a network."""

from __future__ import annotations

import difflib
from typing import Any

from torch import nn

from longtail.nn.vit import pooling


def defaults(model: str) -> dict[str, Any]:
    """The image size, mean and std that a timm model was made for."""
    import timm  # here, because timm and torchvision take seconds to import

    if not timm.is_model(model):
        close = difflib.get_close_matches(model, timm.list_models(), n=5)
        raise ValueError(f"timm has no model {model!r}: the closest are {close or 'none'}; timm.list_models() gives all")
    config = _config(model)
    return {"size": config.input_size[-1], "mean": list(config.mean), "std": list(config.std)}


def _config(model: str) -> Any:
    import timm

    return timm.models.get_pretrained_cfg(model)


def timm_model(
    model: str, size: int, *, pretrained: bool = False, patch: int | None = None, pool: str | None = None, drop_path: float = 0.0
) -> nn.Module:
    """A timm model without its classifier; `patch`, `pool` (see `vit.pooling`) and `drop_path` are its own unless given."""
    import timm

    keywords: dict[str, Any] = {} if patch is None else {"patch_size": patch}
    keywords |= {} if pool is None else pooling(pool)
    keywords |= {"drop_path_rate": drop_path} if drop_path else {}
    if _config(model).fixed_input_size:
        keywords["img_size"] = size
    try:
        body: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=0, **keywords)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise ValueError(
            f"expected pretrained weights of {model}, got: {error} Pass pretrained=false, or fetch them once online"
        ) from error
    side = getattr(getattr(body, "patch_embed", None), "patch_size", (1, 1))[0]
    if size % side:
        raise ValueError(f"expected an image size divisible by the patch, got size {size} and patch {side}: try {size // side * side}")
    return body
