"""Weights of masked autoencoders in the layout people have: the public MAE and LiVT checkpoints,
which is also timm's for the encoder.
"""

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

from longtail.errors import LongtailError
from longtail.nn.heads import Linear
from longtail.nn.mae import MaskedAutoencoder, transformer
from longtail.nn.networks import Classifier, Network, linear_parts
from longtail.records.documents import read_document, write_document
from longtail.records.files import atomic_write
from longtail.records.kinds import ENCODER
from longtail.records.layout import ExportFolder, ModelFolder, RunFolder

DECODER = {
    "decoder_embed.": "embed.",
    "mask_token": "mask_token",
    "decoder_pos_embed": "positions",
    "decoder_blocks.": "blocks.",
    "decoder_norm.": "norm.",
    "decoder_pred.": "pixels.",
}
"""The decoder's parts: their public names, and ours."""

_BESIDE = (*DECODER, "head.", "norm.", "fc_norm.")
_PATCHES = "patch_embed.proj.weight"


@dataclass(frozen=True)
class Weights:
    """Weights of a vision transformer, where they came from, and its spec where that is known."""

    source: Path
    tensors: Mapping[str, Tensor]
    spec: Mapping[str, Any] | None = None
    data: str | None = None  # what they were trained on, where that is known
    minutes: float | None = None  # and for how long

    @property
    def statistics(self) -> dict[str, Any]:
        """The mean and std that their images were normalised with: ImageNet's for public
        checkpoints, which do not say.
        """
        if self.spec is None:
            return {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
        return {"mean": self.spec["mean"], "std": self.spec["std"]}

    @property
    def patch(self) -> int:
        """The side of a patch in pixels."""
        return int(self.tensors[_PATCHES].shape[-1])


def read_weights(source: str | Path) -> Weights:
    """Read the transformer that `source` holds: the folder of a run or of a timm model, or a
    .safetensors, .pth or .pt file.

    Of a run, this is the encoder before fine-tuning (`encoder/`, which `masked_autoencoder` and
    `livt` write); of a run without one, the trained network in `model/`. Both are whole once they
    have a `spec.json`. A file may hold a whole checkpoint, as the public MAE and LiVT ones do;
    nothing in it is executed."""
    source = Path(source)
    if source.is_dir():
        run = RunFolder(source)
        for folder in (run.encoder, run.model, ModelFolder(source)):
            if folder.weights.exists():
                return Weights(source, _bare(_tensors(folder.weights), source), *_about(folder))
        raise LongtailError(
            f"expected a run with an encoder or a trained network, got none at {source}: pass a"
            " finished run's folder"
        )
    beside, exported = ModelFolder(source.parent), ExportFolder(source.parent)
    if source == beside.weights and (beside.spec.exists() or exported.config.exists()):
        return read_weights(source.parent)  # what is beside it knows more
    if not source.exists():
        raise LongtailError(f"expected a run or a file of weights, got nothing at {source}")
    return Weights(source, _bare(_tensors(source), source))


def _about(folder: ModelFolder) -> tuple[Mapping[str, Any] | None, str | None, float | None]:
    """The spec of the weights in a folder of ours, what they have learnt from and how long; of
    timm's only how images were normalised.
    """
    if folder.is_complete:
        about = read_document(folder.spec, ENCODER)
        return (
            about["network"].get("network", about["network"]),
            about.get("data"),
            about.get("minutes"),
        )
    timm = ExportFolder(folder.path).config
    config = json.loads(timm.read_text(encoding="utf-8")) if timm.exists() else {}
    run = RunFolder(folder.path.parent)
    if not config and folder in (run.encoder, run.model):
        raise LongtailError(
            f"expected {folder.spec}, which is written last, got weights alone: let that run"
            " finish, or pass another"
        )
    known = config.get("pretrained_cfg", config)
    return (
        ({"mean": known["mean"], "std": known["std"]} if {"mean", "std"} <= known.keys() else None),
        None,
        None,
    )


def _tensors(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # The public checkpoints carry the arguments of their training, which are a Namespace.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    # What is no checkpoint fails with many types: KeyError, IndexError, struct.error,
    # UnpicklingError, ...
    except Exception as error:
        # Torch prints in colours, and advice first
        reason = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
        reason = (
            f"{type(error).__name__} {reason.rpartition('WeightsUnpickler error: ')[2]}".strip()[
                :200
            ]
        )
        if found := re.search(r"GLOBAL (\S+)", reason):
            raise LongtailError(
                f"expected tensors and numbers, got {found[1]} as well in {path}, and nothing in it"
                " is executed: if you trust it, load it with torch and save its state dict alone,"
                ' torch.save({"model": state_dict}, path)'
            ) from error
        raise LongtailError(
            f"expected weights, got something else or a part of it in {path} ({reason}): copy it"
            " again, or pass another"
        ) from error
    for key in ("model", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(own, Tensor) for own in content.values()
    ):
        raise LongtailError(
            "expected a state dict, or a checkpoint with one under 'model' or 'state_dict', got"
            f" neither in {path}"
        )
    return content


def _bare(tensors: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """The tensors without what a wrapper wrote in front of their names; a classifier's head is no
    part of a transformer.
    """
    found = [name.removesuffix(_PATCHES) for name in tensors if name.endswith(_PATCHES)]
    if len(found) != 1:
        raise LongtailError(
            f"expected the weights of one vision transformer, got {len(found)} patch embeddings in"
            f" {source}"
        )
    return {
        name.removeprefix(found[0]): own
        for name, own in tensors.items()
        if name.startswith(found[0])
    }


def load_encoder(network: Network, weights: Weights) -> Network:
    """Give a vision transformer the weights of another of its width, depth and patch; the image
    size
    may differ.

    Positions are interpolated (bicubic) to the new grid. A norm that only one of the two has begins
    anew: masked autoencoders have theirs before pooling, fine-tuned transformers behind it.
    Decoders and classifiers are left behind. Written in place."""
    body, found, source = transformer(network), weights.tensors, weights.source
    own: dict[str, Tensor] = body.state_dict()
    asked = {
        "patch": own[_PATCHES].shape[-1],
        "width": own[_PATCHES].shape[0],
        "depth": _depth(own),
    }
    given = {
        "patch": found[_PATCHES].shape[-1],
        "width": found[_PATCHES].shape[0],
        "depth": _depth(found),
    }
    heads = (weights.spec or {}).get("heads")
    if heads is not None:  # the only number that no shape tells
        asked["heads"], given["heads"] = body.blocks[0].attn.num_heads, heads
    for name, wanted in asked.items():
        if wanted != given[name]:
            raise LongtailError(
                f"expected weights of {name} {wanted}, as {network.spec['name']} has here, got"
                f" {name} {given[name]} in {source}: give the network the keywords that those"
                " weights were trained with, or take others"
            )
    strange = [name for name in found if name not in own and not name.startswith(_BESIDE)]
    missing = [
        name for name in own if name not in found and not name.startswith(("norm.", "fc_norm."))
    ]
    if strange or missing:
        raise LongtailError(
            f"expected the weights of a {network.spec['name']}, got {len(strange)} others"
            f" ({', '.join(strange[:3]) or 'none'}) and {len(missing)} missing"
            f" ({', '.join(missing[:3]) or 'none'}) in {source}"
        )
    other = [
        name
        for name in own
        if name in found and name != "pos_embed" and found[name].shape != own[name].shape
    ]
    if other:
        here, there = (tuple(tensors[other[0]].shape) for tensors in (own, found))
        raise LongtailError(
            f"expected {other[0]} of shape {here}, as {network.spec['name']} has, got {there} in"
            f" {source}: take other weights"
        )
    loaded = {**own, **{name: tensor for name, tensor in found.items() if name in own}}
    if "pos_embed" in own:
        loaded["pos_embed"] = _interpolated(
            found["pos_embed"], own["pos_embed"], body.patch_embed.grid_size[0], source
        )
    body.load_state_dict(loaded)
    return network


def _depth(tensors: Mapping[str, Tensor]) -> int:
    return 1 + max(
        (int(own[1]) for own in (re.match(r"blocks\.(\d+)\.", name) for name in tensors) if own),
        default=-1,
    )


def _interpolated(found: Tensor, own: Tensor, grid: int, source: Path) -> Tensor:
    from timm.layers.pos_embed import resample_abs_pos_embed

    if found.ndim != 3 or found.shape[-1] != own.shape[-1]:
        raise LongtailError(
            f"expected pos_embed of width {own.shape[-1]}, got shape {tuple(found.shape)} in"
            f" {source}: take other weights"
        )
    prefix = own.shape[1] - grid * grid
    side = round(max(found.shape[1] - prefix, 0) ** 0.5)
    if side * side + prefix != found.shape[1] or not side:
        raise LongtailError(
            f"expected positions of a square grid and {prefix} tokens before it, got"
            f" {found.shape[1]} positions in {source}: take a network with the same class and"
            " register tokens"
        )
    positions: Tensor = resample_abs_pos_embed(
        found, [grid, grid], [side, side], num_prefix_tokens=prefix
    )
    return positions


def write_weights(folder: Path, weights: Weights) -> None:
    """Write weights into a folder where `read_weights` finds them, with all that is known of them."""
    files = ModelFolder(folder)
    with atomic_write(files.weights) as part:
        save_file(
            {
                name: own.clone(memory_format=torch.contiguous_format)
                for name, own in weights.tensors.items()
            },
            part,
        )
    about = {
        "network": weights.spec or weights.statistics,
        "data": weights.data,
        "minutes": weights.minutes,
    }
    write_document(files.spec, about)  # last: a folder that has it is whole


def timm_layout(network: Network) -> dict[str, Tensor]:
    """The weights under the names that timm knows: of a transformer, or of a classifier made of one
    and a linear head.

    They fill `timm.create_model(NAME, num_classes=..., global_pool="avg", fc_norm=True)` of the
    same architecture; an encoder before fine-tuning, whose norm is before pooling, fills one with
    `fc_norm=False`. Normalisation is not among them: give timm the mean and the deviation of the
    network's spec."""
    if not isinstance(network, Classifier):
        return {name: own.detach().cpu() for name, own in transformer(network).state_dict().items()}
    if not isinstance(network.head, Linear):
        raise LongtailError(
            f"expected a linear head, which timm has, got {network.head.spec['name']}: export the"
            " network alone"
        )
    ((weight, bias),) = linear_parts(network)
    return {
        **timm_layout(network.network),
        "head.weight": weight.detach().cpu(),
        "head.bias": bias.detach().cpu(),
    }


def mae_layout(autoencoder: MaskedAutoencoder) -> dict[str, Tensor]:
    """The weights of encoder and decoder under the names of the public MAE and LiVT checkpoints
    (their entry "model").
    """
    decoder = {
        _renamed(name): own.detach().cpu() for name, own in autoencoder.decoder.state_dict().items()
    }
    return {**timm_layout(autoencoder.network), **decoder}


def load_mae(autoencoder: MaskedAutoencoder, weights: Weights) -> MaskedAutoencoder:
    """Give an autoencoder the weights of a public MAE or LiVT checkpoint, decoder included. Written
    in place.
    """
    found = {
        ours + name.removeprefix(public): own
        for public, ours in DECODER.items()
        for name, own in weights.tensors.items()
        if name.startswith(public)
    }
    own = autoencoder.decoder.state_dict()
    wrong = [
        f"{_renamed(name)} {tuple(tensor.shape)} instead of"
        f" {tuple(found[name].shape) if name in found else 'nothing'}"
        for name, tensor in own.items()
        if name not in found or found[name].shape != tensor.shape
    ]
    strange = [_renamed(name) for name in found if name not in own]
    if wrong or strange:
        differences = "; ".join([*wrong, *strange][:3])
        raise LongtailError(
            "expected a decoder of the same width, depth and image size, got another in"
            f" {weights.source}: {differences}"
        )
    load_encoder(autoencoder.network, weights)
    autoencoder.decoder.load_state_dict(found)
    return autoencoder


def _renamed(name: str) -> str:
    public, ours = next((public, ours) for public, ours in DECODER.items() if name.startswith(ours))
    return public + name.removeprefix(ours)
