"""Write a classifier as a folder for `timm.create_model("local-dir:FOLDER", pretrained=True)`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save_file
from torch import nn

from longtail.errors import LongtailError
from longtail.nn import pretrained
from longtail.nn.networks import Classifier, Embedded, innermost, input_spec, linear_parts
from longtail.nn.normalize import Normalize
from longtail.nn.vit import Tokens, pooling
from longtail.records.layout import ExportFolder
from longtail.runs.predicting import Loaded

ELSE = "export it with --to onnx or --to torch"


def write_timm(folder: Path, loaded: Loaded) -> None:
    """Write `model.safetensors` and `config.json`; refuse networks and heads that timm lacks."""
    import timm  # here, because timm and torchvision take seconds to import

    network = loaded.network
    if not isinstance(network, Classifier):
        raise LongtailError(f"expected a classifier, got a {type(network).__name__}: {ELSE}")
    if isinstance(network.network, Embedded):
        raise LongtailError(f"timm has no layers between a network and its head: {ELSE}")
    inner: Any = innermost(network)
    body: Any = inner.body
    body = body.transformer if isinstance(body, Tokens) else body
    if not (heads := linear_parts(network)):
        answer = network.head.spec.get("answer")
        got = network.head.spec["name"] + (f" with --answer {answer}" if answer else "")
        raise LongtailError(f"expected a linear head, which timm has, got {got}: {ELSE}")
    architecture, keywords = _entry(inner.spec, body)
    model: Any = timm.create_model(architecture, num_classes=len(loaded.classes), **keywords)
    classifier = model.pretrained_cfg.get("classifier") or ()
    names = [classifier] if isinstance(classifier, str) else list(classifier)
    if not names or len(heads) > len(names):
        raise LongtailError(
            f"expected a timm model with {len(heads)} classifiers, "
            f"got {architecture} with {len(names)}: {ELSE}"
        )
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    state = dict(body.state_dict())
    # One head may stand for two: timm takes the mean of both.
    for name, (weight, bias) in zip(names, heads * len(names), strict=False):
        state[f"{name}.weight"] = weight.reshape(shapes[f"{name}.weight"])
        state[f"{name}.bias"] = bias
    model.load_state_dict(state)
    save_file(
        {name: tensor.cpu().contiguous().clone() for name, tensor in model.state_dict().items()},
        ExportFolder(folder).weights,
    )
    content = _config(architecture, keywords, loaded, features=int(model.num_features))
    ExportFolder(folder).config.write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def read_timm(folder: Path) -> nn.Module:
    """The written model as timm loads it, after its normalisation: images in [0, 1] to logits."""
    import timm

    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True)
    return nn.Sequential(
        Normalize(model.pretrained_cfg["mean"], model.pretrained_cfg["std"]), model
    ).eval()


def _entry(spec: Mapping[str, Any], body: Any) -> tuple[str, dict[str, Any]]:
    """timm's name for an architecture, and the keywords that build ours."""
    name, pool = spec["name"], spec.get("pool")
    if name.startswith("timm:"):
        model = name.removeprefix("timm:")
        keywords = {} if spec["patch"] is None else {"patch_size": spec["patch"]}
        keywords |= {"img_size": spec["size"]} if pretrained.config(model).fixed_input_size else {}
        return model.partition(".")[0], keywords | (
            {} if pool in (None, "tokens") else pooling(str(pool))
        )
    if name not in ("vit_mini", "vit_tiny"):
        raise LongtailError(
            f"expected a network that timm has (vit_mini, vit_tiny, timm:NAME), got {name}: {ELSE}"
        )
    keywords = {"img_size": spec["size"], "patch_size": body.patch_embed.patch_size[0]}
    keywords |= {
        "embed_dim": spec["width"],
        "depth": spec["depth"],
        "num_heads": spec["heads"],
        "init_values": spec["layer_scale"],
    }
    if pool == "tokens":
        return "deit_tiny_distilled_patch16_224", keywords
    return "vit_tiny_patch16_224", keywords | pooling(str(pool))


def _config(
    architecture: str, keywords: Mapping[str, Any], loaded: Loaded, *, features: int
) -> dict[str, Any]:
    spec = input_spec(cast(Any, loaded.network.spec))
    preprocessing = loaded.preprocessing
    return {
        "architecture": architecture,
        "num_classes": len(loaded.classes),
        "num_features": features,
        "label_names": list(loaded.classes),
        "model_args": dict(keywords),
        "pretrained_cfg": {
            "tag": "longtail",
            "custom_load": False,
            "input_size": [3, loaded.size, loaded.size],
            "fixed_input_size": "img_size" in keywords,
            "interpolation": "bicubic" if preprocessing.geometry == "crop" else "bilinear",
            "crop_pct": preprocessing.crop,
            "crop_mode": {"pad": "border", "crop": "center", "stretch": "squash"}[
                preprocessing.geometry
            ],
            "mean": spec["mean"],
            "std": spec["std"],
            "num_classes": len(loaded.classes),
        },
    }
