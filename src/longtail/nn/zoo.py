"""timm models as networks."""

from __future__ import annotations

import difflib
from typing import Any

from safetensors import SafetensorError
from torch import nn

from longtail.errors import LongtailError
from longtail.nn import pretrained as weights
from longtail.nn.normalize import Normalize
from longtail.nn.vit import Tokens, check_drop_path, pooling


def defaults(model: str) -> dict[str, Any]:
    """The image size, mean and std of a timm model."""
    import timm  # here, because timm and torchvision take seconds to import

    if not timm.is_model(model):
        close = difflib.get_close_matches(model, timm.list_models(), n=5)
        closest = f"the closest are {close}; " if close else ""
        raise LongtailError(f"timm has no network {model!r}: {closest}timm.list_models() gives all")
    config = weights.config(model)
    return {"size": config.input_size[-1], "mean": list(config.mean), "std": list(config.std)}


def timm_model(
    model: str,
    size: int,
    *,
    pretrained: bool | str = False,
    patch: int | None = None,
    pool: str | None = None,
    drop_path: float = 0.0,
) -> nn.Module:
    """A timm model without its classifier.

    Args:
        model: timm's name of the model.
        size: the side of the images in pixels.
        pretrained: whether to load its pretrained weights; or the path of a file with weights in
            timm's layout, which needs no hub.
        patch: the side of a patch; the default is the model's.
        pool: see `vit.pooling`; the default is the model's.
        drop_path: the drop path rate.
    """
    import timm

    check_drop_path(drop_path)
    keywords: dict[str, Any] = {} if patch is None else {"patch_size": patch}
    keywords |= {} if pool in (None, "tokens") else pooling(str(pool))
    keywords |= {"drop_path_rate": drop_path} if drop_path else {}
    if weights.config(model).fixed_input_size:
        keywords["img_size"] = size
    if pretrained:
        keywords["pretrained_cfg_overlay"] = (
            weights.file_overlay(pretrained)
            if isinstance(pretrained, str)
            else weights.config_overlay(model)
        )
    try:
        body: nn.Module = timm.create_model(
            model, pretrained=bool(pretrained), num_classes=0, **keywords
        )
    except (TypeError, AssertionError) as error:
        if pool not in (None, "tokens"):  # set by recipes, not by users
            raise LongtailError(
                f"{model} is not a plain vision transformer: use one, such as"
                f" timm:vit_base_patch16_224 ({error})"
            ) from error
        keywords_given = {"patch": patch, "pool": pool, "drop_path": drop_path or None}
        given = (
            ", ".join(name for name, value in keywords_given.items() if value is not None)
            or "a size"
        )
        reason = str(error) or "it allows no others"
        raise LongtailError(
            f"{model} does not support {given}: {reason}. Remove them, or use a ViT"
        ) from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if not pretrained:
            raise
        if isinstance(pretrained, str):
            raise LongtailError(
                f"the weights in {pretrained} are not those of {model}: {error}"
            ) from error
        raise LongtailError(
            f"cannot load the pretrained weights of {model}: {error} Use random initial weights"
            " (--weights random), or download them once online"
        ) from error
    if isinstance(pretrained, str):
        weights.check_complete(pretrained, body, model)
    patch_size = getattr(getattr(body, "patch_embed", None), "patch_size", 1)
    side = patch_size if isinstance(patch_size, int) else patch_size[0]
    if size % side:
        raise LongtailError(
            f"expected an image size divisible by the patch, got size {size} and patch {side}: try"
            f" {max(1, size // side) * side}"
        )
    if pool != "tokens":
        return body
    if not hasattr(body, "dist_token"):
        raise LongtailError(
            f"{model} has no distillation token: use deit_tiny, deit_small or"
            " deit_base_distilled_patch16_224"
        )
    return Tokens(body)


def timm_classifier(model: str) -> tuple[nn.Module, tuple[str, ...] | None, int]:
    """Load a pretrained timm model with its classifier and normalisation.

    Returns it with the names of its classes, if timm has them, and its image size. ImageNet classes
    are named by their WordNet identifiers, such as n01440764.
    """
    import timm
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    config = defaults(model)
    try:
        body: nn.Module = timm.create_model(
            model, pretrained=True, pretrained_cfg_overlay=weights.config_overlay(model)
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise LongtailError(
            f"cannot load the pretrained weights of {model}: {error} Download them once online, or"
            " train a teacher"
        ) from error
    subset = infer_imagenet_subset(body)
    names = tuple(ImageNetInfo(subset).label_names()) if subset else None
    return nn.Sequential(Normalize(config["mean"], config["std"]), body), names, config["size"]
