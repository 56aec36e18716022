"""Muon against a slow reference and an SVD, its other half against torch's AdamW."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from longtail.engine.muon import Muon, muon, orthogonalise
from longtail.errors import LongtailError


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8, bias=False))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, image: Tensor) -> Tensor:
        features: Tensor = self.trunk(self.conv(image).mean((2, 3))) + self.cls_token[0]
        return self.head(features)  # type: ignore[no-any-return]


def trained(method: Toy, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        image = torch.randn(8, 3, 6, 6, generator=generator)
        target = torch.randint(3, (8,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(method(image), target).backward()
        optimizer.step()


def test_singular_values_come_near_one_and_their_vectors_stay() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, 16, 40)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    done = orthogonalise(matrices)
    values = torch.linalg.svdvals(done)
    assert values.min() > 0.6
    assert values.max() < 1.3
    # In the basis of the singular vectors it is diagonal
    turned = left.mT @ done @ right.mT
    assert (turned - torch.diag_embed(turned.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4


def slow(matrix: Tensor) -> Tensor:
    """One matrix, orthogonalised through its singular values: the quintic five times on each."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / matrix.double().norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    product: Tensor = left @ values.diag() @ right
    return product


def test_nearly_singular_matrices_are_those_of_a_slow_reference() -> None:
    torch.manual_seed(0)  # as gradients are: a few directions, and little of all others
    matrices = torch.randn(2, 24, 3) @ torch.randn(2, 3, 60) + 1e-3 * torch.randn(2, 24, 60)
    expected = torch.stack([slow(matrix) for matrix in matrices])
    torch.testing.assert_close(orthogonalise(matrices).double(), expected, atol=2e-4, rtol=0)


def test_steps_are_those_of_a_slow_reference() -> None:
    torch.manual_seed(0)
    method = Toy()
    before = deepcopy(method)
    optimizer = muon(lr=0.1, adamw_lr=0.01, weight_decay=0.5)(method)
    trained(method, optimizer, range(1))
    for name, p in method.named_parameters():
        old = before.get_parameter(name).detach().double()
        assert p.grad is not None
        grad = p.grad.double()
        if name in ("conv.weight", "trunk.0.weight", "trunk.2.weight"):
            flat = grad.flatten(1)  # a first step of momentum is in the gradient's direction
            scale = max(1, flat.shape[0] / flat.shape[1]) ** 0.5
            expected = (1 - 0.1 * 0.5) * old - 0.1 * scale * slow(flat).reshape(old.shape)
        else:
            decay = 0.5 if name == "head.weight" else 0.0
            expected = (1 - 0.01 * decay) * old - 0.01 * grad / (grad.abs() + 1e-8)
        torch.testing.assert_close(p.detach().double(), expected, rtol=1e-4, atol=1e-5)


def test_the_rest_is_torchs_adamw() -> None:
    torch.manual_seed(0)
    method = Toy()
    other = deepcopy(method)
    trained(method, Muon([{"params": method.parameters(), "weight_decay": 0.1}], 0.01), range(5))
    theirs = torch.optim.AdamW(other.parameters(), 0.01, betas=(0.9, 0.95), weight_decay=0.1)
    trained(other, theirs, range(5))
    for mine, expected in zip(method.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, expected)


def test_it_resumes_to_the_bit() -> None:
    torch.manual_seed(0)
    straight = Toy()
    resumed = deepcopy(straight)
    trained(straight, muon()(straight), range(6))
    first = muon()(resumed)
    trained(resumed, first, range(3))
    second = muon()(resumed)
    second.load_state_dict(deepcopy(first.state_dict()))
    trained(resumed, second, range(3, 6))
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_matrices_of_one_shape_step_as_they_would_alone() -> None:
    torch.manual_seed(0)
    together = torch.randn(4, 8, 12)
    alone = torch.cat([orthogonalise(matrix[None]) for matrix in together])
    torch.testing.assert_close(orthogonalise(together), alone)


def test_parts_have_their_scales_and_no_rate_is_zero() -> None:
    groups = muon(lr=0.02, adamw_lr=0.001, scales={"trunk": 0.1})(Toy()).param_groups
    rates = {(group["muon"], round(group["lr"], 6)) for group in groups}
    assert rates == {(True, 0.02), (True, 0.002), (False, 0.001), (False, 0.0001)}
    with pytest.raises(LongtailError, match="learning rates must be positive"):
        muon(lr=0.0)
