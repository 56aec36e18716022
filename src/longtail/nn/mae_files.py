"""Weights of masked autoencoders in the layout of the public MAE and LiVT checkpoints.

For the encoder that is also timm's layout.
"""

from __future__ import annotations

from torch import Tensor

from longtail.errors import LongtailError
from longtail.nn.encoders import Weights, load_encoder
from longtail.nn.heads import Linear
from longtail.nn.mae import MaskedAutoencoder, transformer
from longtail.nn.networks import Classifier, Network, linear_parts

DECODER = {
    "decoder_embed.": "embed.",
    "mask_token": "mask_token",
    "decoder_pos_embed": "positions",
    "decoder_blocks.": "blocks.",
    "decoder_norm.": "norm.",
    "decoder_pred.": "pixels.",
}
"""Names of the decoder's parts in public checkpoints, and in `Decoder`."""


def timm_layout(network: Network) -> dict[str, Tensor]:
    """The weights of a transformer, or of a classifier with a linear head, under timm's names.

    They fit `timm.create_model(NAME, num_classes=..., global_pool="avg", fc_norm=True)` of the same
    architecture; an encoder before fine-tuning, whose norm is before pooling, fits one with
    `fc_norm=False`. Normalisation is not included: pass the mean and std of the network's spec to
    timm.
    """
    if not isinstance(network, Classifier):
        state = transformer(network).state_dict()
        return {name: tensor.detach().cpu() for name, tensor in state.items()}
    if not isinstance(network.head, Linear):
        raise LongtailError(
            f"timm has linear heads only, got {network.head.spec['name']}: export the network alone"
        )
    ((weight, bias),) = linear_parts(network)
    return {
        **timm_layout(network.network),
        "head.weight": weight.detach().cpu(),
        "head.bias": bias.detach().cpu(),
    }


def mae_layout(autoencoder: MaskedAutoencoder) -> dict[str, Tensor]:
    """The weights of encoder and decoder as in the entry "model" of public MAE checkpoints."""
    decoder = {
        _public_name(name): tensor.detach().cpu()
        for name, tensor in autoencoder.decoder.state_dict().items()
    }
    return {**timm_layout(autoencoder.network), **decoder}


def load_mae(autoencoder: MaskedAutoencoder, weights: Weights) -> MaskedAutoencoder:
    """Load a public MAE or LiVT checkpoint, with its decoder, into an autoencoder, in place."""
    loaded = {
        ours + name.removeprefix(public): tensor
        for public, ours in DECODER.items()
        for name, tensor in weights.tensors.items()
        if name.startswith(public)
    }
    current = autoencoder.decoder.state_dict()
    wrong = [
        f"{_public_name(name)} {tuple(tensor.shape)} instead of"
        f" {tuple(loaded[name].shape) if name in loaded else 'nothing'}"
        for name, tensor in current.items()
        if name not in loaded or loaded[name].shape != tensor.shape
    ]
    unexpected = [_public_name(name) for name in loaded if name not in current]
    if wrong or unexpected:
        differences = "; ".join([*wrong, *unexpected][:3])
        raise LongtailError(
            "expected a decoder of the same width, depth and image size, got another in"
            f" {weights.source}: {differences}"
        )
    load_encoder(autoencoder.network, weights)
    autoencoder.decoder.load_state_dict(loaded)
    return autoencoder


def _public_name(name: str) -> str:
    public, ours = next((public, ours) for public, ours in DECODER.items() if name.startswith(ours))
    return public + name.removeprefix(ours)
