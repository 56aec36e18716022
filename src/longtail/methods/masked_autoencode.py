"""Masked autoencoding: pretraining on images without labels."""

from __future__ import annotations

from torch import Tensor

from longtail.core import Clock, Images, Method, Outcome
from longtail.nn import Network
from longtail.nn.mae import MaskedAutoencoder


class MaskedAutoencode(Method[Images]):
    """Train a masked autoencoder; predicts and deploys the encoder's pooled features.

    The first stage of LiVT.

    >>> import torch
    >>> from longtail.nn import build
    >>> from longtail.nn.mae import initialise
    >>> spec = {"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 1, "pool": "avg"}
    >>> network = initialise(build(spec))
    >>> method = MaskedAutoencode(MaskedAutoencoder(network, width=8, depth=1, heads=2))
    >>> batch: Images = {"image": torch.rand(4, 3, 8, 8), "position": torch.arange(4)}
    >>> list(method(batch, Clock(0, 1, 0, 1)).terms), method.predict(batch["image"]).shape
    (['reconstruction'], torch.Size([4, 16]))
    """

    def __init__(self, autoencoder: MaskedAutoencoder) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, batch: Images, clock: Clock) -> Outcome:
        """One term, "reconstruction"."""
        return Outcome({"reconstruction": self.autoencoder(batch["image"]).loss})

    def predict(self, image: Tensor) -> Tensor:
        """Features of images without masking."""
        return self.autoencoder.network(image)  # type: ignore[no-any-return]

    def deploy(self) -> Network:
        """The encoder; it shares its weights with this method."""
        return self.autoencoder.network
