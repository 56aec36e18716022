"""MixStyle: mix the style of feature maps between images of different domains."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError


class MixStyle(nn.Module):
    """Replace mean and deviation of each feature map by a mixture with those of another domain.

    (x - mean) / std * mixed std + mixed mean, with mixed = weight * that of the image + (1 -
    weight) * that of a random image of another domain, weight ~ Beta(alpha, alpha). No gradient
    goes through mean and deviation. Where all images are of one domain, any of them is the other
    one. Zhou et al. 2021 (MixStyle), equations 5 to 7.

    Args:
        probability: that a batch is changed; all of its images are.
        alpha: of the Beta distribution: small values seldom mix, but swap or keep.

    >>> maps, domain = torch.rand(4, 8, 5, 5), torch.tensor([0, 1, 0, 1])
    >>> MixStyle(probability=1.0)(maps, domain).shape
    torch.Size([4, 8, 5, 5])
    """

    def __init__(self, *, probability: float = 0.5, alpha: float = 0.1) -> None:
        super().__init__()
        if not 0 <= probability <= 1 or alpha <= 0:
            raise LongtailError(
                f"expected a probability in [0, 1] and an alpha above 0, got {probability} and"
                f" {alpha}"
            )
        self.probability, self.alpha = probability, alpha

    def forward(self, maps: Tensor, domain: Tensor) -> Tensor:
        """Mix maps (N, C, H, W) of images from domains (N,)."""
        if maps.ndim != 4 or maps.shape[2:].numel() < 2:
            raise LongtailError(
                f"MixStyle needs feature maps (N, C, H, W) of several pixels, got"
                f" {tuple(maps.shape)}: use a convolutional network, or an earlier stage of it"
            )
        if torch.rand(()) >= self.probability:
            return maps
        with torch.no_grad():
            mean = maps.mean((2, 3), keepdim=True)
            std = (maps.var((2, 3), keepdim=True) + 1e-6).sqrt()
            other = (domain[:, None] != domain).float()
            other[~other.any(1)] = 1.0
            partner = torch.multinomial(other, 1).squeeze(1)
            beta = torch.distributions.Beta(self.alpha, self.alpha)
            weight = beta.sample((len(maps), 1, 1, 1)).to(maps)
            new_mean, new_std = (
                weight * value + (1 - weight) * value[partner] for value in (mean, std)
            )
        return (maps - mean) / std * new_std + new_mean
