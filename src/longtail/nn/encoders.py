"""Encoders: the weights that the network of another run starts from, in files."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from longtail.errors import LongtailError, torch_reason
from longtail.nn.mae import transformer
from longtail.nn.networks import Backbone, Network
from longtail.nn.vit import Tokens
from longtail.records.documents import LIMIT as JSON_LIMIT
from longtail.records.documents import read_document, write_document
from longtail.records.files import WEIGHTS_LIMIT, atomic_write, check_regular, read_regular
from longtail.records.kinds import ENCODER
from longtail.records.layout import ExportFolder, ModelFolder, RunFolder

_PATCHES = "patch_embed.proj.weight"
# Not parts of an encoder: decoders of masked autoencoders and classifiers; norms are optional.
_IGNORED = ("decoder_", "mask_token", "head.", "head_dist.", "norm.", "fc_norm.")
_CLASSIFIERS = ("fc.", "head.", "classifier.", "last_linear.")
_COPIES = ("encoder_k.", "momentum_encoder.")  # momentum copies in public MoCo checkpoints


@dataclass(frozen=True)
class Weights:
    """Weights of a network, their source, and its spec if known."""

    source: Path
    tensors: Mapping[str, Tensor]
    spec: Mapping[str, Any] | None = None
    data: str | None = None  # what they were trained on, if known
    minutes: float | None = None  # of training, if known

    @property
    def statistics(self) -> dict[str, Any]:
        """The mean and std of their images; ImageNet's for public checkpoints, which have none."""
        if self.spec is None:
            return {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
        if missing := {"mean", "std"} - self.spec.keys():
            raise LongtailError(
                f"the network of {self.source} has no {' and '.join(sorted(missing))} of its"
                " images: pass another run or file"
            )
        return {"mean": self.spec["mean"], "std": self.spec["std"]}

    @property
    def patch(self) -> int:
        """The side of a patch in pixels, of a vision transformer."""
        return int(_patches(self).shape[-1])


def read_weights(source: str | Path) -> Weights:
    """Read the weights of a network.

    Args:
        source: the folder of a run or of a timm model, or a .safetensors, .pth or .pt file. Of a
            run, the encoder before fine-tuning is read (`encoder/`, which `masked_autoencoder`,
            `moco_v2`, `moco_v3` and `livt` write), or else the trained network in `model/`; both
            are complete once they have a `spec.json`. A file may be a full checkpoint, as the
            public MAE, MoCo and LiVT ones are; nothing in it is executed.
    """
    source = Path(source)
    if source.is_dir():
        run = RunFolder(source)
        for folder in (run.encoder, run.model, ModelFolder(source)):
            if folder.weights.exists():
                return Weights(source, _bare(_tensors(folder.weights), source), *_about(folder))
        raise LongtailError(
            f"there is no encoder and no trained network at {source}: pass the folder of a finished"
            " run"
        )
    beside, exported = ModelFolder(source.parent), ExportFolder(source.parent)
    if source == beside.weights and (beside.spec.exists() or exported.config.exists()):
        return read_weights(source.parent)  # its folder also has the spec
    if not source.exists():
        raise LongtailError(f"there is nothing at {source}: pass a run folder or a file of weights")
    return Weights(source, _bare(_tensors(source), source))


def _about(folder: ModelFolder) -> tuple[Mapping[str, Any] | None, str | None, float | None]:
    """The spec, the training data and the training minutes of the weights in a folder.

    A folder of timm has only the mean and std of the images.
    """
    if folder.is_complete:
        about = read_document(folder.spec, ENCODER)
        return (
            about["network"].get("network", about["network"]),
            about.get("data"),
            about.get("minutes"),
        )
    timm = ExportFolder(folder.path).config
    config = _timm_config(timm) if timm.exists() else {}
    run = RunFolder(folder.path.parent)
    if not config and folder in (run.encoder, run.model):
        raise LongtailError(
            f"{folder.spec} is missing, so the run is not finished: wait until it is, or pass"
            " another folder"
        )
    known = config.get("pretrained_cfg", config)
    return (
        ({"mean": known["mean"], "std": known["std"]} if {"mean", "std"} <= known.keys() else None),
        None,
        None,
    )


def _timm_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(read_regular(path, limit=JSON_LIMIT))
        if not isinstance(config, dict) or not isinstance(config.get("pretrained_cfg", {}), dict):
            raise ValueError("an object is missing")
    except (ValueError, RecursionError) as error:
        raise LongtailError(
            f"expected a model's config of timm in {path}, got something else ({error}): download"
            " it again, or delete it"
        ) from error
    return config


def _tensors(path: Path) -> Mapping[str, Tensor]:
    check_regular(path, limit=WEIGHTS_LIMIT)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # The public checkpoints carry the arguments of their training, which are a Namespace.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    # A file that is no checkpoint raises many types: KeyError, IndexError, struct.error,
    # UnpicklingError, ...
    except Exception as error:
        reason = torch_reason(error)
        if match := re.search(r"GLOBAL (\S+)", reason):
            raise LongtailError(
                f"{path} contains {match[1]}, which is code and is not executed: if you trust"
                " the file,"
                " load it with torch and save its state dict alone,"
                ' torch.save({"model": state_dict}, path)'
            ) from error
        raise LongtailError(
            f"{path} is not a file of weights, or incomplete ({reason}): copy it again, or pass"
            " another"
        ) from error
    for key in ("model", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        raise LongtailError(
            f"{path} has no state dict: expected one, or a checkpoint with one under 'model' or"
            " 'state_dict'"
        )
    return content


def _bare(tensors: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """The tensors of a transformer, without the prefix that a wrapper added to their names.

    Those of other networks stay as they are.
    """
    prefixes = [
        name.removesuffix(_PATCHES)
        for name in tensors
        if name.endswith(_PATCHES) and not any(copy in name for copy in _COPIES)
    ]
    if not prefixes:
        return dict(tensors)
    if len(prefixes) != 1:
        raise LongtailError(
            "expected the weights of one vision transformer, got"
            f" {len(prefixes)} patch embeddings in {source}"
        )
    return {
        name.removeprefix(prefixes[0]): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefixes[0])
    }


def load_encoder(network: Network, weights: Weights) -> Network:
    """Load weights of the same architecture into a network, in place.

    Of a vision transformer, the image size may differ: position embeddings are interpolated
    (bicubic) to the new grid. A norm that only one of the two has keeps its initial weights: masked
    autoencoders have a norm before pooling, fine-tuned transformers after it. A distillation token
    that only the network has starts as a copy of the class token. Decoders and classifiers are
    ignored.
    """
    if not isinstance(network, Backbone):
        raise LongtailError(f"{network.spec['name']} takes no weights of another network")
    if any(name.endswith(_PATCHES) for name in network.body.state_dict()):
        _load_transformer(network, weights)
    else:
        _load_body(network, weights)
    return network


def encoder_weights(network: Network) -> dict[str, Tensor]:
    """The weights of an encoder as `write_weights` stores them: timm's layout, without classifier.

    Normalisation is not included: it is in the network's spec.
    """
    assert isinstance(network, Backbone)
    return {name: tensor.detach().cpu() for name, tensor in network.body.state_dict().items()}


def _load_body(network: Backbone, weights: Weights) -> None:
    """Load weights into a network that is no transformer; each tensor must be there."""
    current: dict[str, Tensor] = network.body.state_dict()
    counters = {name for name in current if name.endswith("num_batches_tracked")}
    expected, source = [name for name in current if name not in counters], weights.source
    if not expected:
        raise LongtailError(f"{network.spec['name']} has no weights to load: remove --weights")
    # A wrapper may have added a prefix, such as "network.body." or "module.encoder_q."
    prefixes = [
        name.removesuffix(expected[0])
        for name in weights.tensors
        if name.endswith(expected[0]) and not any(copy in name for copy in _COPIES)
    ]
    complete = [
        prefix for prefix in prefixes if all(prefix + name in weights.tensors for name in expected)
    ]
    of = (weights.spec or {}).get("name")
    named = f", but they are of {of}: pass --network {of}" if of else ": use other weights"
    if len(complete) != 1:
        raise LongtailError(f"{source} has no weights of a {network.spec['name']}{named}")
    prefix = complete[0]
    loaded = {
        name: weights.tensors[prefix + name] for name in current if prefix + name in weights.tensors
    }
    different = [name for name in loaded if loaded[name].shape != current[name].shape]
    unexpected = [
        name
        for name in weights.tensors
        if name.startswith(prefix)
        and name.removeprefix(prefix) not in current
        and not name.removeprefix(prefix).startswith(_CLASSIFIERS)
    ]
    if different or unexpected:
        first = (different or unexpected)[0]
        raise LongtailError(
            f"expected the weights of a {network.spec['name']}, got another {first} in"
            f" {source}{named}"
        )
    network.body.load_state_dict({**current, **loaded})


def _patches(weights: Weights) -> Tensor:
    """The patch projection of a vision transformer's weights."""
    if _PATCHES not in weights.tensors:
        raise LongtailError(
            "expected the weights of one vision transformer, got 0 patch embeddings in"
            f" {weights.source}"
        )
    return weights.tensors[_PATCHES]


def _load_transformer(network: Backbone, weights: Weights) -> None:
    """Load weights of the same width, depth and patch into a vision transformer."""
    body: Any = network.body
    body = body.transformer if isinstance(body, Tokens) else transformer(network)
    loaded, source = weights.tensors, weights.source
    _patches(weights)
    current: dict[str, Tensor] = body.state_dict()
    if "dist_token" in current and "dist_token" not in loaded:
        loaded = _add_distillation_token(loaded)
    expected = {
        "patch": current[_PATCHES].shape[-1],
        "width": current[_PATCHES].shape[0],
        "depth": _depth(current),
    }
    given = {
        "patch": loaded[_PATCHES].shape[-1],
        "width": loaded[_PATCHES].shape[0],
        "depth": _depth(loaded),
    }
    heads = (weights.spec or {}).get("heads")
    if heads is not None:  # the only number that no shape shows
        expected["heads"], given["heads"] = body.blocks[0].attn.num_heads, heads
    for name, value in expected.items():
        if value != given[name]:
            raise LongtailError(
                f"expected weights of {name} {value}, as {network.spec['name']} has here, got"
                f" {name} {given[name]} in {source}: build the network with the keywords that the"
                " weights were trained with, or use other weights"
            )
    unexpected = [name for name in loaded if name not in current and not name.startswith(_IGNORED)]
    missing = [
        name
        for name in current
        if name not in loaded and not name.startswith(("norm.", "fc_norm."))
    ]
    if unexpected or missing:
        raise LongtailError(
            f"expected the weights of a {network.spec['name']}, got {len(unexpected)} unexpected"
            f" ({', '.join(unexpected[:3]) or 'none'}) and {len(missing)} missing"
            f" ({', '.join(missing[:3]) or 'none'}) in {source}"
        )
    different = [
        name
        for name in current
        if name in loaded and name != "pos_embed" and loaded[name].shape != current[name].shape
    ]
    if different:
        first = different[0]
        raise LongtailError(
            f"expected {first} of shape {tuple(current[first].shape)}, as"
            f" {network.spec['name']} has, got {tuple(loaded[first].shape)} in {source}: use other"
            " weights"
        )
    state = {**current, **{name: tensor for name, tensor in loaded.items() if name in current}}
    if "pos_embed" in current:
        state["pos_embed"] = _interpolated(
            loaded["pos_embed"], current["pos_embed"], body.patch_embed.grid_size[0], source
        )
    body.load_state_dict(state)


def _add_distillation_token(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with a copy of the class token, and of its position, as a distillation token."""
    added = {
        "dist_token": tensors.get("cls_token"),
        "pos_embed": None
        if "pos_embed" not in tensors
        else torch.cat([tensors["pos_embed"][:, :1], tensors["pos_embed"]], 1),
    }
    return {**tensors, **{name: tensor for name, tensor in added.items() if tensor is not None}}


def _depth(tensors: Mapping[str, Tensor]) -> int:
    return 1 + max(
        (int(m[1]) for m in (re.match(r"blocks\.(\d+)\.", name) for name in tensors) if m),
        default=-1,
    )


def _interpolated(loaded: Tensor, current: Tensor, grid: int, source: Path) -> Tensor:
    from timm.layers.pos_embed import resample_abs_pos_embed

    if loaded.ndim != 3 or loaded.shape[-1] != current.shape[-1]:
        raise LongtailError(
            f"expected pos_embed of width {current.shape[-1]}, got shape {tuple(loaded.shape)} in"
            f" {source}: use other weights"
        )
    prefix = current.shape[1] - grid * grid
    side = round(max(loaded.shape[1] - prefix, 0) ** 0.5)
    if side * side + prefix != loaded.shape[1] or not side:
        raise LongtailError(
            f"expected position embeddings of a square grid and {prefix} tokens before it, got"
            f" {loaded.shape[1]} positions in {source}: use a network with the same class and"
            " register tokens"
        )
    positions: Tensor = resample_abs_pos_embed(
        loaded, [grid, grid], [side, side], num_prefix_tokens=prefix
    )
    return positions


def write_weights(folder: Path, weights: Weights) -> None:
    """Write weights, and what is known about them, into a folder for `read_weights`."""
    files = ModelFolder(folder)
    with atomic_write(files.weights) as part:
        save_file(
            {
                name: tensor.clone(memory_format=torch.contiguous_format)
                for name, tensor in weights.tensors.items()
            },
            part,
        )
    about = {
        "network": weights.spec or weights.statistics,
        "data": weights.data,
        "minutes": weights.minutes,
    }
    write_document(files.spec, about)  # last: a folder with a spec is complete
