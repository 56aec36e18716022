from __future__ import annotations

import pytest
import torch

from longtail.errors import LongtailError
from longtail.nn.mixstyle import MixStyle


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Maps whose mean is near the number of their domain."""
    torch.manual_seed(0)
    domain = torch.tensor([0, 0, 0, 4, 4, 4])
    return torch.randn(6, 2, 5, 5, dtype=torch.float64) + domain[:, None, None, None], domain


def test_styles_are_mixed_with_another_domain_and_content_stays() -> None:
    maps, domain = batch()
    mixed = MixStyle(probability=1.0, alpha=0.1)(maps, domain)

    def content(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True)

    assert torch.allclose(content(mixed), content(maps), atol=1e-4)
    before, after = maps.mean((2, 3)), mixed.mean((2, 3))
    moved = (before - after).abs()
    assert moved.max() > 2  # swapped: with such an alpha, a mixture seldom keeps the middle
    # A mixture of the image's mean and that of some image of the other domain
    for row in range(6):
        others = before[domain != domain[row]]
        weights = (after[row] - others) / (before[row] - others)
        close = (weights.amax(1) - weights.amin(1)).abs() < 1e-9
        assert close.any()
        assert ((weights[close] > -1e-9) & (weights[close] < 1 + 1e-9)).all()


def test_it_applies_to_a_share_of_the_batches() -> None:
    maps, domain = batch()
    assert torch.equal(MixStyle(probability=0.0)(maps, domain), maps)
    style = MixStyle(probability=0.5)
    changed = [not torch.equal(style(maps, domain), maps) for _ in range(200)]
    assert 70 < sum(changed) < 130


def test_no_gradient_goes_through_the_statistics() -> None:
    maps, domain = batch()
    torch.manual_seed(1)
    mixed = MixStyle(probability=1.0)(maps.requires_grad_(), domain)
    (gradient,) = torch.autograd.grad(mixed.sum(), maps)
    # Of each map the factor std' / std; with statistics differentiated, most would cancel
    scale = gradient.amax((2, 3)) - gradient.amin((2, 3))
    assert torch.allclose(scale, torch.zeros_like(scale), atol=1e-12)
    assert (gradient > 0).all()


def test_a_batch_of_one_domain_mixes_its_images() -> None:
    maps, _ = batch()
    mixed = MixStyle(probability=1.0)(maps, torch.zeros(6, dtype=torch.long))
    assert torch.isfinite(mixed).all()


def test_what_has_no_style_is_refused() -> None:
    for shape in ((4, 8), (4, 9, 16), (4, 8, 1, 1)):
        with pytest.raises(LongtailError, match="needs feature maps"):
            MixStyle()(torch.rand(shape), torch.arange(4))
    with pytest.raises(LongtailError, match="expected a probability"):
        MixStyle(alpha=0.0)
